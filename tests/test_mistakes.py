# SPDX-License-Identifier: MIT
"""Mistakes that people make: the message names the wrong word, the right one, and what to do."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from tests.cases import cases
from tests.said import Command

ROOT = Path(__file__).parents[1]
LINES = Path(__file__).with_name("mistakes.tsv").read_text().splitlines()
MISTAKES = [line.split("\t") for line in LINES if not line.startswith("#")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the commands name."""
    path = tmp_path_factory.mktemp("mistakes")
    (path / "empty.log").touch()
    (path / "prose.txt").write_text("hello\nthis is prose\n")
    (path / "foo.txt").write_text("abc\n")
    (path / "job.py").write_text("import torch  # NCCL\n")
    shutil.copy(ROOT / "tests/data/h200x4/osu_bw_healthy_a.log", path / "run.log")
    shutil.copy(ROOT / "busbar/demo/sweep-64.jsonl", path / "results.jsonl")
    (path / "old.json").write_text('{"schema": "busbar-check/0"}')
    (path / "logs.tgz").write_bytes(gzip.compress(b"NCCL"))
    site = (ROOT / "site/h200x4/site.yaml").read_text()
    for name, right, wrong in [
        ("typo", "node_types", "node_tpyes"),
        ("indent", " count: 4", "  count: 4"),
    ]:
        (path / name).mkdir()
        (path / name / "site.yaml").write_text(site.replace(right, wrong))
    (path / "run").mkdir()
    (path / "run/results.json").write_text('{"schema": "busbar-check/1"}')
    (path / "sweeps").mkdir()
    shutil.copy(path / "results.jsonl", path / "sweeps")
    return path


@pytest.fixture
def typed(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Calls commands there; some start a process of their own, which prints the message."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("BUSBAR_HISTORY", str(place))
    return Command(capfd)


@pytest.mark.run
@cases(("command", "wrong", "right"), MISTAKES)
def test_a_mistake(command: str, wrong: str, right: str, typed: Command) -> None:
    said = typed(command)
    assert said.status in (1, 2)  # 1: a finding of lint
    assert "internal error" not in said.err
    assert wrong in said.out + said.err
    assert right in said.out + said.err


def test_as_many_as_promised() -> None:
    assert len(MISTAKES) >= 200
