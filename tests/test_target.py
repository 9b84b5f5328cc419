# SPDX-License-Identifier: MIT
"""Where a run goes on a cluster: which nodes are tested, and which cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check.target import Request, access_of, coverage, target_of, untested
from busbar.errors import BusbarError
from busbar.parse.machine.sinfo import Node, parse_nodes
from busbar.verdict import Verdict

# As Slurm 22.05.8 prints it with --format='%N|%T|%E'; a reason may contain the separator.
SINFO = """\
n1|idle|none
n2|mixed|none
n3|drained|bad | fan
n4|down*|Not responding
"""
TOOLS = {
    "sinfo": f"cat <<'END'\n{SINFO}END\n",
    "srun": "true\n",
    "scontrol": "echo 'JobId=7 JobState=RUNNING Partition=gpu NodeList=n[1-3] BatchHost=n1'\n",
}


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that print what Slurm printed."""
    for name, script in TOOLS.items():
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{script}")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


SITE = sites.load("h20-roce")  # its partition is gpu


def test_the_nodes_of_a_partition() -> None:
    nodes = parse_nodes(SINFO + "\nslurm_load_partitions: error\n")
    assert [node.usable for node in nodes] == [True, True, False, False]
    assert nodes[2].described == "n3 drained (bad | fan)"
    assert nodes[0].described == "n1 idle"
    for state in ("drained*", "draining", "fail", "unknown", "inval", "power_down", "idle*"):
        assert not Node("a", state).usable
    for state in ("idle", "allocated", "mixed", "planned", "completing", "reserved", "idle~"):
        assert Node("a", state).usable


def test_all_nodes_that_slurm_gives_are_tested_and_the_others_are_listed() -> None:
    target = target_of(SITE, Request(every_node=True))
    assert target.sweep is not None
    assert target.sweep.nodes == {"gpu": ("n1", "n2")}
    assert untested(target, "ucx-1.14") == []
    assert coverage(target, ["n1", "n2", "n2"]) == (
        "2 of 4 nodes tested, 2 cannot be: n3 drained (bad | fan), n4 down* (Not responding)"
    )


def test_a_named_node_that_cannot_be_tested_is_not_run() -> None:
    target = target_of(SITE, Request(nodelist="n[1-3]"))
    assert target.sweep is not None
    assert target.sweep.nodes == {"gpu": ("n1", "n2")}
    (outcome,) = untested(target, "ucx-1.14")
    assert outcome.verdict is Verdict.NOT_RUN
    assert [row.where for row in outcome.results] == ["n3"]
    assert outcome.results[0].message == "n3 drained (bad | fan): Slurm starts no job on it"


def test_without_a_wish_the_scheduler_chooses() -> None:
    target = target_of(SITE, Request(max_pending="10m"))
    assert target.sweep is None
    assert target.options == ("-S", "max_pending_time=10m")
    assert coverage(target, ["n1"]).startswith("1 of 4 nodes tested, 2 cannot be")


def test_inside_an_allocation_all_of_its_nodes_are_taken(monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    target = target_of(SITE, Request())
    assert target.allocation is not None
    assert target.sweep is not None
    assert target.sweep.nodes == {"gpu": ("n1", "n2", "n3")}
    assert target.options == ("--system", "h20-roce:gpu")
    named = target_of(SITE, Request(nodelist="n2"))
    assert named.sweep is not None
    assert named.sweep.nodes == {"gpu": ("n2",)}


@pytest.mark.parametrize(
    ("request_", "site", "message"),
    [
        (Request(nodelist="n9"), "h20-roce", "n9 not in gpu"),
        (Request(nodelist="n["), "h20-roce", "is not a list of nodes"),
        (Request(every_node=True), "local", "has no Slurm"),
        (Request(sbatch="--qos=x"), "local", "has no Slurm"),
    ],
)
def test_what_does_not_fit_is_refused(request_, site, message) -> None:
    with pytest.raises(BusbarError, match=message):
        target_of(sites.load(site), request_)


@pytest.mark.parametrize(
    ("request_", "site", "message"),
    [
        (Request(nodelist="n4"), "h20-roce", "n4 not among the nodes of job 7"),
        (Request(sbatch="--qos=x"), "h20-roce", "submits no job"),
        (Request(), "mi300x", "partition gpu, which the site does not have"),
    ],
)
def test_what_an_allocation_does_not_have_is_refused(request_, site, message, monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(BusbarError, match=message):
        target_of(sites.load(site), request_)


def test_the_options_of_sbatch() -> None:
    assert access_of("--account=ops -p big --comment='a b'") == (
        "--account=ops",
        "-p big",
        "'--comment=a b'",
    )
    assert access_of("") == ()
    for wrong in ("ops", "--a='", "--comment='a\nb'"):
        with pytest.raises(BusbarError):
            access_of(wrong)
