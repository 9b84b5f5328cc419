# SPDX-License-Identifier: MIT
"""The pages for people: no dead link, short sentences, and commands that print what they show."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from ci.docs import website
from tests.cases import cases
from tests.said import ran

ROOT = Path(__file__).parents[2]
LONGEST = 25
"""Words of a sentence that a reader in a hurry takes in at once."""


def anchors(page: Path) -> set[str]:
    """The headings of a page, as git hosts and the site name them, and anchors of its own."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    heads = [re.sub(r"[^\w\- ]", "", head) for head in re.findall(r"^#+ (.+)$", text, re.M)]
    own = re.findall(r'<a (?:id|name)="([^"]+)"', text)
    return {head.strip().lower().replace(" ", "-") for head in heads} | set(own)


@cases("page", website.pages())
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)", page.read_text()):
        linked = (page.parent / target).resolve() if target else page
        assert linked.is_file(), f"{page}: {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{page}: {target}#{anchor}"


def test_each_page_is_on_the_site() -> None:
    text = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text())
    settings = yaml.safe_load(text)
    listed = set(re.findall(r"[\w/-]+\.md", str(settings["nav"])))
    pages = {page.relative_to(ROOT).as_posix() for page in website.pages()}
    assert pages == listed


def sentences(page: Path) -> list[str]:
    """The sentences of prose: no code, tables, pictures or headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    lines = [line for line in text.splitlines() if not re.match(r"[|#<!]", line)]
    text = re.sub(r"\]\([^)]*\)", "]", "\n".join(lines))
    blocks = re.split(r"\n\s*\n|\n(?=- |\d+\. )", text)
    return [
        one for block in blocks for one in re.split(r"(?<=[.?!:])\s+", " ".join(block.split()))
    ]


@cases("name", ["README.md", "docs/tutorial.md", "docs/faq.md", *sorted(
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/start/*.md")
)])  # fmt: skip
def test_sentences_are_short(name: str) -> None:
    found = sentences(ROOT / name)
    assert [one for one in found if len(one.split()) > LONGEST] == []


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```\n(\$ .*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.mark.run
@cases("block", blocks(ROOT / "docs/tutorial.md"))
def test_commands_of_the_tutorial_print_what_it_shows(block: str, tmp_path: Path) -> None:
    """Each line that is shown, in this order; ``...`` stands for any others."""
    for name in ("busbar", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = "\n".join(f"{line[2:]}; true" for line in block.splitlines() if line[:2] == "$ ")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    places = {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = ran("bash", "-ec", script, cwd=tmp_path, env=os.environ | places)
    printed = iter(line.rstrip() for line in done.stdout.splitlines())
    for line in block.splitlines():
        if line[:2] != "$ " and line != "...":
            start, more, _ = line.rstrip().partition(" ...")
            found = (each.startswith(start) if more else each == start for each in printed)
            assert any(found), f"{line}\n{done.stdout}{done.stderr}"
