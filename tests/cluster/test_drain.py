# SPDX-License-Identifier: MIT
"""The drain script: what a shell makes of it, whatever the names and the evidence contain."""

from __future__ import annotations

import subprocess
from pathlib import Path

from busbar.cluster.measure.drain import script
from busbar.cluster.sweep.analyse import Accusation
from tests.cases import cases

NODES = [f"n{n}" for n in range(1, 9)]


def run(text: str, directory: Path) -> list[list[str]]:
    """Return the words of each scontrol that a shell runs."""
    tool = directory / "scontrol"
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@" END >>"$0.words"\n')
    tool.chmod(0o755)
    command = ["sh", "-eu", "-c", text]
    done = subprocess.run(
        command,
        env={"PATH": f"{directory}:/usr/bin:/bin"},
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stdout + done.stderr
    words = directory / "scontrol.words"
    calls = words.read_text().split("END\n")[:-1] if words.exists() else []
    return [call.splitlines() for call in calls]


@cases(
    "evil",
    ["$(touch pwned)", "`touch pwned`", "'; touch pwned #", '"\ntouch pwned\n', "\x1b[2J\\"],
)
def test_nothing_in_a_reason_or_name_runs(evil: str, tmp_path: Path) -> None:
    accused = [
        Accusation(f"n3{evil}", "node", f"slow{evil}", (f"n3{evil}",)),
        Accusation(f"leaf{evil}", "uplink", f"slow{evil}", ("n1", "n2")),
    ]
    accused.append(Accusation("n5", "node", f"slow{evil}", ("n5",)))
    calls = run(script(accused, {f"n4{evil}": f"gone{evil}"}, NODES), tmp_path)
    assert not list(tmp_path.glob("pwned"))
    assert [call[:3] for call in calls] == [["update", "nodename=n5", "state=drain"]]
    assert len(calls[0]) == 4


@cases("name", ["ALL", "all", "n[1-8]", "n1,n2", "n1 n2", "n1\n", ""])
def test_only_names_of_one_node_are_drained(name: str, tmp_path: Path) -> None:
    accused = [Accusation(name, "node", "slow", (name,))]
    assert run(script(accused, {"all2": "lost"}, NODES), tmp_path)[0][1] == "nodename=all2"


def test_most_of_a_fleet_is_not_drained(tmp_path: Path) -> None:
    gone = dict.fromkeys(NODES[:5], "lost")
    text = script([], gone, NODES)
    assert "# 5 of 8 nodes are accused or lost: check --limit" in text
    assert run(text, tmp_path) == []
    del gone["n1"]
    assert len(run(script([], gone, NODES), tmp_path)) == 4


def test_the_reason_fits_and_names_check_value_and_node(tmp_path: Path) -> None:
    accused = [
        Accusation("n3/eth0", "nic", "0.005 GB/s; 90% of 0.025 GB/s is the least" * 20, ("n3",)),
        Accusation("n3/eth1", "nic", "also slow", ("n3",)),
        Accusation("n1-n2", "link", "slow", ("n1", "n2")),
    ]
    (call,) = run(script(accused, {}, NODES), tmp_path)
    assert call[:3] == ["update", "nodename=n3", "state=drain"]
    start = "reason=[node_problem] busbar sweep: nic n3/eth0: 0.005 GB/s; 90% of 0.025 GB/s"
    assert call[3].startswith(start)
    assert len(call[3].removeprefix("reason=")) <= 250


def test_without_a_bad_node_nothing_is_drained(tmp_path: Path) -> None:
    assert run(script([], {}, NODES), tmp_path) == []
