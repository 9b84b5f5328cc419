# SPDX-License-Identifier: MIT
"""Collect the pages of the documentation site: ``python -m ci.docs.website DIR``.

The site has the README as its first page, and each file of the repository that a page links to, so
that the same links work on the site, in a checkout and on a page of a git host.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\((?P<target>[^)#\s:]+)(?:#[^)\s]*)?\)")


def pages() -> list[Path]:
    """Return every page, below the checkout."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def links(page: Path) -> list[Path]:
    """Return the files that a page links to, whether they exist or not."""
    text = page.read_text(encoding="utf-8")
    return [(page.parent / found["target"]).resolve() for found in _LINK.finditer(text)]


def main() -> None:
    """Copy pages and linked files."""
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    linked = (path for page in pages() for path in links(page))
    for path in {*pages(), *linked, *ROOT.glob("ci/docs/*.[cj]s*")}:
        if path.is_file():
            copy = target / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


if __name__ == "__main__":
    main()
