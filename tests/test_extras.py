# SPDX-License-Identifier: MIT
"""Without extras the base commands work, and the others name the extra that they lack."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.said import ran

DATA = Path(__file__).parent / "data"
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

ABSENT = ("numpy", "jinja2", "prometheus_client", "reframe")

class Absent(MetaPathFinder):
    def find_spec(self, name, *_):
        if name in ABSENT:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
present = importlib.util.find_spec
importlib.util.find_spec = lambda name, *_: None if name in ABSENT else present(name, *_)
from busbar import cli
sys.stderr = sys.stdout
for line in sys.stdin.read().splitlines():
    try:
        status = cli.main(line.split())
    except SystemExit as end:
        status = end.code
    print(f"\\fstatus {status}", end="\\f", flush=True)
"""
COMMANDS = [
    (f"explain {DATA / 'h200x4' / 'nccl_p2p_disabled.log'}", 1, "nccl-p2p-off"),
    ("expect --site h200x4 --from 0 --to 1", 0, "limit"),
    ("site list", 0, "h200x4"),
    ("site lint", 0, " 0 findings"),
    ("site detect --output OUT", 0, "busbar site lint"),
    ("gate --site h200x4 --passive", 0, "site h200x4"),
    ("preflight . --site local", 2, "not a root file system"),
    ("report x", 2, "needs the Python package numpy, which is not installed; run: make setup"),
    ("history show", 2, "needs the Python package numpy"),
    ("sweep analyse x", 2, "needs the Python package numpy"),
    ("nightly --site h200x4", 2, "needs the Python package numpy"),
    ("check", 2, "needs the Python package reframe"),
]


@pytest.mark.run
def test_commands(tmp_path: Path) -> None:
    lines = [line.replace("OUT", str(tmp_path / "site")) for line, _, _ in COMMANDS]
    done = ran(sys.executable, "-c", WITHOUT, input="\n".join(lines), check=True)
    *said, rest = done.stdout.split("\f")
    for (line, status, words), printed, ended in zip(COMMANDS, said[::2], said[1::2], strict=True):
        assert (ended, words in printed) == (f"status {status}", True), (line, printed)
    assert "Traceback" not in done.stdout + done.stderr
    assert not rest
