# SPDX-License-Identifier: MIT
"""``busbar site new`` writes a site that is clean, and refuses to overwrite one."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import site as sites
from busbar.detect.write import REFRAME_FILE
from busbar.expect.lint import lint
from tests.cases import cases
from tests.said import Command


@cases("like", sites.names())
def test_a_site_like_another_is_clean(like: str, tmp_path: Path, busbar: Command) -> None:
    said = busbar(f"site new mine --like {like} --output", tmp_path)
    directory = tmp_path / "mine"
    assert said.status == 0
    assert f"busbar site lint {directory}" in said.out
    assert lint(directory) == []
    site, model = sites.load(directory), sites.load(like)
    assert (site.name, site.proof, site.references) == ("mine", "none", ())
    assert site.partitions == model.partitions
    assert site.node.nics == model.node.nics
    assert (directory / "reframe.py").read_text() == REFRAME_FILE
    text = (directory / "site.yaml").read_text()
    assert "# Where checks run. `access` has the options of the scheduler" in text


def test_it_goes_to_the_first_directory_of_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.chdir(tmp_path)
    assert busbar("site new here --like p5").status == 0
    monkeypatch.setenv("BUSBAR_SITE_PATH", str(own))
    assert busbar("site new there --like p5").status == 0
    assert (tmp_path / "here" / "site.yaml").is_file()
    assert (own / "there" / "site.yaml").is_file()
    assert "there" in sites.names()


@cases(
    ("words", "message"),
    [
        ("My_Site --like p5", "invalid site name 'My_Site'"),
        ("mine --like p6", "no site 'p6'"),
        ("taken --like p5", "already exists"),
    ],
)
def test_what_it_refuses(words: str, message: str, tmp_path: Path, busbar: Command) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "site.yaml").write_text("name: taken\n")
    said = busbar(f"site new {words} --output", tmp_path)
    assert said.status == 2
    assert message in said.err
