# SPDX-License-Identifier: MIT
"""What a site adds to the checks of the gate: commands of its own, and free space."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from busbar.gate.run import run
from busbar.verdict import Verdict
from tests.cases import cases

from .node import Node

PLUGIN = """\
  checks: {mount_space: {mode: enforce}}
  mounts: [{path: /scratch, free_percent: 5}]
  commands:
    - {name: clock, run: [PROGRAM, a b, c d], seconds: 1, mode: enforce, remedy: start chrony}
"""


@cases(
    ("script", "verdict", "reason"),
    [
        ("sleep 60", "unknown", ""),  # only a process of its own ends it
        ('echo "fine $# $2"; echo more', "pass", ""),
        ("echo slow; exit 1", "degraded", ""),
        (
            "echo '7 s off' >&2; exit 2",
            "failed",
            "[node_problem] command clock 7 s off vs ok: start chrony (busbar)",
        ),
        ("exit 3", "unknown", ""),
        ("kill -9 $$", "unknown", ""),
    ],
)
def test_commands_of_the_site(
    node: Node, request: pytest.FixtureRequest, script: str, verdict: str, reason: str
) -> None:
    if script != "sleep 60":
        request.getfixturevalue("at_once")
    node.program("clock", script)
    program = node.root / "bin/clock"
    site = (node.root / "here/site.yaml").read_text().partition("gate:")[0]
    node.write("here/site.yaml", f"{site}gate:\n{PLUGIN.replace('PROGRAM', str(program))}")
    result = run(node.options())
    (row,) = (row for row in result.checks if row.check == "command")
    assert (row.where, str(row.verdict), result.reason) == ("clock", verdict, reason)
    assert row.value == "fine 2 c d" or verdict != "pass"
    if verdict == "pass":
        program.chmod(0o777)
        (row,) = (row for row in run(node.options()).checks if row.check == "command")
        assert (row.verdict, "clock" in row.note) == (Verdict.UNKNOWN, True)


def test_a_full_file_system(node: Node, monkeypatch: pytest.MonkeyPatch, at_once: None) -> None:
    site = (node.root / "here/site.yaml").read_text().partition("gate:")[0]
    node.write("here/site.yaml", f"{site}gate:\n{PLUGIN.partition('  commands')[0]}")
    for free, blocks, verdict in ((51, 1000, "pass"), (49, 1000, "failed"), (0, 0, "unknown")):
        space = SimpleNamespace(f_bavail=free, f_blocks=blocks)
        monkeypatch.setattr(os, "statvfs", lambda _, space=space: space)
        result = run(node.options())
        (row,) = (row for row in result.checks if row.check == "mount_space")
        assert str(row.verdict) == verdict
        assert result.drain == (verdict == "failed")
