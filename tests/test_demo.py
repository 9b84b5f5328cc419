# SPDX-License-Identifier: MIT
"""The demo runs the commands on its recordings, and says which of these were measured."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.said import ran

pytestmark = pytest.mark.run
ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "busbar" / "demo"


def test_what_it_shows_is_what_the_commands_find(tmp_path: Path) -> None:
    history = tmp_path / "mine"
    environment = {**os.environ, "BUSBAR_HISTORY": str(history)}
    words = (sys.executable, "-m", "busbar", "demo", "--output", tmp_path / "out")
    for _ in range(2):  # the second time in the same directory
        done = ran(*words, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        parts = done.stdout.split("== ")[1:]
        found = [
            ("A healthy node", "pass: no reading is below its band"),
            ("TCP instead of the fast links", "cause nccl-socket-fallback (certain)"),
            ("A GPU with 10 of its 18 NVLinks", "cause gpu-link-slow (likely)"),
            ("A slow node in a sweep of 64", "node n23: "),
            ("A step in the history", "differs: driver 570.86.15 -> 575.57.08"),
        ]
        for part, (title, said) in zip(parts, found, strict=True):
            assert part.startswith(title)
            assert said in part
        assert "n23" in (tmp_path / "out" / "pages" / "index.html").read_text()
    assert not history.exists()


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").mkdir()
    done = ran(sys.executable, "-m", "busbar", "demo", "--output", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_recordings_are_small_and_their_origin_is_said() -> None:
    assert sum(file.stat().st_size for file in DEMO.iterdir()) < 300_000
    stories = yaml.safe_load((DEMO / "stories.yaml").read_text())
    named = {re.match(r"[\w.-]+", story["recorded"])[0] for story in stories}
    assert named == {file.name for file in DEMO.iterdir()} - {"stories.yaml"}
    assert all(re.search("measured|simulated", story["recorded"]) for story in stories)
