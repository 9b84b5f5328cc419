# SPDX-License-Identifier: MIT
"""What the programs of Slurm 24.11 and 26.05 print, as Debian has them, is understood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from busbar.slurm.jobs import JobEnd, parse_end
from busbar.slurm.nodes import parse_hardware, parse_nodes
from busbar.slurm.topology import leaf_switches_in, read_topology
from tests.cases import cases
from tests.said import Command

RELEASES = ("24.11.5", "26.05.5")
LEAVES = {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}
ENDS = {
    "CANCELLED": "the job on n2 was ended after 00:00:04 (scancel): CANCELLED; run it again",
    "PREEMPTED": "was ended after 00:00:{}: PREEMPTED; run it again",
    "NODE_FAIL": "Slurm ended the job on n4 after 00:00:04: NODE_FAIL (NodeDown)",
    "TIMEOUT": "Slurm ended the job on n3 after 00:00:{}: TIMEOUT (TimeLimit)",
}


@pytest.fixture(params=RELEASES)
def printed(request: pytest.FixtureRequest, data: Path) -> Path:
    """Directory of what one release printed."""
    return data / "slurm" / request.param


def jobs(printed: Path) -> list[JobEnd]:
    found = [parse_end(line) for line in (printed / "jobs.txt").read_text().splitlines()]
    return [end for end in found if end]


def test_nodes_and_their_states(printed: Path) -> None:
    nodes = parse_nodes((printed / "sinfo.txt").read_text())
    assert [node.name for node in nodes if node.usable] == ["n1", "n2", "n3"]
    assert nodes[-1].described == "n4 drained (bad fan)"
    hardware = parse_hardware((printed / "nodes.txt").read_text())
    assert {(each.cpus, each.gpu_count, each.is_idle) for each in hardware} == {(4, 2, True)}
    assert {each.partitions for each in hardware} == {("lab", "high")}


def test_leaf_switches(printed: Path, tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(leaf_switches_in((printed / "topology.txt").read_text()))
    assert read_topology(file).leaf_of == LEAVES


def test_the_topology_in_yaml_is_that_which_slurm_showed(data: Path) -> None:
    assert read_topology(data / "slurm" / "26.05.5" / "topology.yaml").leaf_of == LEAVES


def test_each_end_is_told_in_its_own_words(printed: Path) -> None:
    """A job that runs, waits to be requeued, or is one of an array has no problem."""
    for end in jobs(printed):
        said = end.refused or end.problem
        if end.state not in ENDS:
            assert end.state in ("RUNNING", "PENDING")
            assert not end.refused
            continue
        words = ENDS[end.state].format(end.run_time[-2:])
        assert words in said
        assert bool(end.refused) == (end.state in ("CANCELLED", "PREEMPTED"))
    states = {end.state for end in jobs(printed)}
    assert states >= {"CANCELLED", "PREEMPTED", "NODE_FAIL", "RUNNING", "PENDING"}


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("24.11.5", "JobId=3 JobState=TIMEOUT NodeList=n3"),
        ("26.05.5", "JobId=3 JobState=PREEMPTED NodeList=n3"),
    ],
)
def test_json_of_scontrol_is_read(busbar: Command, data: Path, release: str, words: str) -> None:
    said = busbar("explain", data / "slurm" / release / "job.json")
    assert words in said.out


@cases("release", ["22.05", "25.05"])
@cases(
    ("state", "words"),
    [
        ("FAILED", "failed: JobId=71 JobState=FAILED NodeList=n[1-2] Signal=KILL"),
        ("TIMEOUT", "the run reached its time limit"),
        ("PREEMPTED", "not run: JobId=71 JobState=PREEMPTED"),
        ("CANCELLED", "not run: JobId=71 JobState=CANCELLED"),
        ("NODE_FAIL", "failed: JobId=71 JobState=NODE_FAIL"),
    ],
)
def test_json_of_sacct_is_read(
    busbar: Command, tmp_path: Path, release: str, state: str, words: str
) -> None:
    """As 22.05.8 printed it, and as documented from 23.02 on; the job was requeued before."""
    success: dict[str, object] = {"status": "SUCCESS", "return_code": 0}
    ended: dict[str, object] = {"return_code": None, "signal": {"signal_id": 9, "name": "KILL"}}
    current: object = state
    if release > "23":
        zero, nine = ({"set": True, "infinite": False, "number": number} for number in (0, 9))
        success = {"status": ["SUCCESS"], "return_code": zero}
        ended = {"return_code": zero, "signal": {"id": nine, "name": "KILL"}}
        current = [state]
    job = {"job_id": 71, "nodes": "n[1-2]", "exit_code": success, "steps": []}
    first = job | {"state": {"current": "CANCELLED"}}
    last = job | {"state": {"current": current}, "steps": [{"exit_code": ended}]}
    file = tmp_path / "sacct.json"
    file.write_text(json.dumps({"jobs": [first, last], "meta": {}}))
    assert words in busbar("explain", file).out
    file = tmp_path / "scontrol.json"
    file.write_text(json.dumps({"jobs": [last | {"exit_code": 1792, "steps": None}]}))
    assert words.removesuffix(" Signal=KILL") in busbar("explain", file).out
