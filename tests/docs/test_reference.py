# SPDX-License-Identifier: MIT
"""The pages of docs/reference/ are those that the code gives now."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from busbar import cli, commands, site as sites
from busbar.delivery import programs
from busbar.delivery.choice import Choice
from busbar.delivery.reframe import configuration
from busbar.site.load import find
from ci.docs import pages, reference
from tests.cases import cases

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"


def test_every_page_is_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["reference", str(tmp_path / "reference")])
    monkeypatch.chdir(ROOT)
    reference.main()
    written = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*.*")}
    # The picture of a band explains the idea, and is not drawn again.
    kept = {*PAGES.rglob("*.*"), *PAGES.parent.glob("pictures/*.*")}
    kept.remove(PAGES.parent / "pictures/band.svg")
    assert written.keys() == {path.relative_to(PAGES.parent) for path in kept}
    for name, path in written.items():
        assert (PAGES.parent / name).read_text() == path.read_text(), f"{name}: run make docs"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Each command and subcommand."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield child
                yield from parsers(child)


def test_help_says_what_a_command_does_and_how_it_ends() -> None:
    """With two examples or more, whose options exist."""
    wrong = []
    main = cli.build_parser(commands.SUMMARIES)
    for parser in parsers(main):
        if parser._subparsers:
            continue
        text = parser.description or ""
        statuses = text.partition("\n\nExit status: 0 ")[2].partition("\n\n")[0]
        examples = text.partition("\n\nExamples:\n\n")[2].splitlines()
        if not re.match(r"[A-Z][^\n]+\.\n\n", text) or "2 " not in statuses or len(examples) < 2:
            wrong.append((parser.prog, text))
        wrong += [(parser.prog, each.dest) for each in parser._actions if not each.help]
        for line in examples:
            words = shlex.split(line)
            if not line.startswith(f"    {parser.prog}") or main.parse_args(words[1:]) is None:
                wrong.append((parser.prog, line))
    assert not wrong


def test_every_key_of_a_site_has_a_meaning() -> None:
    page = (PAGES / "site-yaml.md").read_text()
    assert "| meaning |" in page
    assert not [line for line in page.splitlines() if line.endswith("|  |")]


def test_every_feature_of_a_site_or_program_has_a_description() -> None:
    features = {*programs.provided(), *programs.compiled()}
    for name in sites.names():
        config = configuration(find(name).parent, Choice(declared=True))
        (system,) = config["systems"]
        for each in (*system["partitions"], *config["environments"]):
            features.update(each["features"])
    assert len(features) > 15
    assert features <= pages.FEATURES.keys()


def test_what_checks_use_needs_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("FEATURES", "PARAMETERS", "TAGS", "ASSERTIONS"):
        with monkeypatch.context() as patch:
            patch.setattr(pages, table, {})
            with pytest.raises(SystemExit, match=f"describe the {table.lower()}"):
                pages.checks_page()


@cases(
    "code", ['os.environ["NEW_ONE"]', 'os.environ.get("NEW_ONE", "")', '"NEW_ONE" in os.environ']
)
def test_a_variable_without_description_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "busbar").mkdir()
    (tmp_path / "busbar" / "new.py").write_text(f"import os\n{code}\n")
    with pytest.raises(SystemExit, match=r"describe in \S+: NEW_ONE"):
        pages.environment_page()


def test_a_variable_that_nothing_reads_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"nothing reads .*BUSBAR_HOSTFILE"):
        pages.environment_page()
