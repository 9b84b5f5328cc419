# SPDX-License-Identifier: MIT
"""Write docs/reference/ and docs/pictures/ from the code: ``python -m ci.docs.reference``.

It ends with an error if the code holds something that no page describes, such as an environment
variable without an entry in variables.yaml.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from . import pages
from .checks import checks_page
from .pictures import PICTURES, picture
from .schemas import documents, json_page

PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "causes.md": pages.causes_page,
    "checks.md": checks_page,
    "cli.md": pages.cli_page,
    "environment.md": pages.environment_page,
    "gate.md": pages.gate_page,
    "json.md": json_page,
    "licenses.md": pages.licenses_page,
    "site-yaml.md": pages.keys_page,
    "sites.md": pages.sites_page,
}
_HEAD = "<!-- `make docs` writes this page; do not edit it. -->"
_INTROS = Path(__file__).with_name("intro")


def main() -> None:
    """Write every page, every schema and every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=Path("docs/reference"))
    directory: Path = parser.parse_args().directory
    (directory / "schemas").mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        intro = (_INTROS / name).read_text(encoding="utf-8")
        text = "\n".join([_HEAD, intro, *page()]).rstrip() + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    for document in documents():
        text = json.dumps(document.schema(), indent=2) + "\n"
        (directory / "schemas" / document.file).write_text(text, encoding="utf-8")
    pictures = directory.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    for name, command in PICTURES.items():
        (pictures / name).write_text(picture(command), encoding="utf-8")


if __name__ == "__main__":
    main()
