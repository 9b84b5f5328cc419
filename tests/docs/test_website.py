# SPDX-License-Identifier: MIT
"""The documentation site: it builds without a warning, and all that it links to is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.run


class Page(HTMLParser):
    """The links of a page, and what a link can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
                # A page of documentation loads nothing from others.
                assert (tag == "a" and name == "href") or not urlsplit(value).netloc, value
            elif name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value or "")


def called(*words: str | Path, **more: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"} | more,
        check=False,
        capture_output=True,
        text=True,
    )
    if words[0] == "pip" and done.returncode and "HASH" not in done.stderr.upper():
        pytest.skip("no package index is here")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def website(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs-site`` builds it, with the packages in a directory of their own."""
    place = tmp_path_factory.mktemp("website")
    packages = place / "packages"
    locked = ("--require-hashes", "-r", ROOT / "locks/docs.txt")
    called("pip", "install", "--quiet", "--no-deps", *locked, "--target", packages)
    called("ci.docs.website", place / "pages")
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "strict: true" in settings
    settings = settings.replace("build/site-pages", "pages").replace("build/site", "site")
    (place / "mkdocs.yml").write_text(settings)
    called("mkdocs", "build", "-f", place / "mkdocs.yml", PYTHONPATH=str(packages))
    return place / "site"


def test_links_anchors_search_and_the_page_for_a_wrong_address(website: Path) -> None:
    pages = {path: Page(path) for path in website.rglob("*.html")}
    assert len(pages) > 40
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            # The server inserts the address of the site into the page for a wrong address.
            if parts.scheme or parts.netloc or link.startswith("/"):
                assert path.name == "404.html" or not link.startswith("/"), (path, link)
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                dead.append(f"{path.relative_to(website)}: {link}")
    assert dead == []
    index = (website / "search/search_index.js").read_text()
    for path in pages.keys() - {website / "404.html"}:
        assert f'"{path.relative_to(website).as_posix()}"' in index
