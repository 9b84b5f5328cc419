# SPDX-License-Identifier: MIT
"""Where a run goes on a cluster: which nodes are tested, and which cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.check.target import Target, coverage, target_of, untested
from busbar.errors import BusbarError
from busbar.slurm.nodes import Node, parse_nodes
from busbar.slurm.options import Wish, access_of
from busbar.verdict import Verdict
from tests.cases import cases
from tests.files import executable

# As Slurm 22.05.8 prints it with --format='%N|%T|%E'; a reason may contain the separator.
SINFO = """\
n1|idle|none
n2|mixed|none
n3|drained|bad | fan
n4|down*|Not responding
"""
TOOLS = {
    "sinfo": f"cat <<'END'\n{SINFO}END",
    "srun": "true",
    "scontrol": "echo 'JobId=7 JobState=RUNNING Partition=gpu NodeList=n[1-3] BatchHost=n1'",
}


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that print what Slurm printed."""
    for name, script in TOOLS.items():
        executable(tmp_path / name, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


SITE = sites.load("h20-roce")  # its partition is gpu


def swept(target: Target) -> dict[str, tuple[str, ...]]:
    """The nodes that are tested, by partition."""
    assert target.sweep is not None
    return dict(target.sweep.nodes)


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
    target = target_of(SITE, Wish(), every_node=True)
    assert swept(target) == {"gpu": ("n1", "n2")}
    assert untested(target, "ucx-1.14") == []
    assert coverage(target, ["n1", "n2", "n2"]) == (
        "2 of 4 nodes tested, 2 cannot be: n3 drained (bad | fan), n4 down* (Not responding)"
    )


def test_a_named_node_that_cannot_be_tested_is_not_run() -> None:
    target = target_of(SITE, Wish(nodelist="n[1-3]"))
    assert swept(target) == {"gpu": ("n1", "n2")}
    (outcome,) = untested(target, "ucx-1.14")
    assert outcome.verdict is Verdict.NOT_RUN
    assert [row.where for row in outcome.results] == ["n3"]
    assert outcome.results[0].message == "n3 drained (bad | fan): Slurm cannot start a job on it"


def test_all_nodes_need_a_cluster() -> None:
    with pytest.raises(BusbarError, match="has no Slurm"):
        target_of(sites.load("local"), Wish(), every_node=True)


def test_a_partition_leaves_out_the_nodes_of_the_others(tmp_path: Path) -> None:
    first = SITE.partitions[0].model_copy(update={"name": "first", "access": ()})
    second = first.model_copy(update={"name": "second", "access": ("-p slow",)})
    site = SITE.model_copy(update={"partitions": (first, second)})
    lines = ('case "$*" in *=slow*)', 'echo "s1|idle|none" ;; *)', 'echo "f1|idle|none" ;; esac')
    (tmp_path / "sinfo").write_text("\n".join(("#!/bin/sh", *lines, "")))
    both = target_of(site, Wish(), every_node=True)
    assert swept(both) == {"first": ("f1",), "second": ("s1",)}
    one = target_of(site, Wish("second"), every_node=True)
    assert swept(one) == {"second": ("s1",)}
    assert one.options == ("--system", "h20-roce:second")
    assert [node.name for node in target_of(site, Wish("second")).nodes] == ["s1"]
    with pytest.raises(BusbarError, match="f1 not in slow"):
        target_of(site, Wish("second", nodelist="f1"))
    with pytest.raises(BusbarError, match="no partition 'third'; known: first, second"):
        target_of(site, Wish("third"))


def test_without_a_wish_the_scheduler_chooses() -> None:
    target = target_of(SITE, Wish(max_pending_s=600))
    assert target.sweep is None
    assert target.options == ("-S", "max_pending_time=600s")
    assert coverage(target, ["n1"]).startswith("1 of 4 nodes tested, 2 cannot be")


def test_inside_an_allocation_all_of_its_nodes_are_taken(monkeypatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    target = target_of(SITE, Wish())
    assert target.allocation is not None
    assert swept(target) == {"gpu": ("n1", "n2", "n3")}
    assert target.options == ("--system", "h20-roce:gpu")
    assert swept(target_of(SITE, Wish(nodelist="n2"))) == {"gpu": ("n2",)}


@cases(
    ("job", "wish", "site", "message"),
    [
        ("", Wish(nodelist="n9"), "h20-roce", "n9 not in gpu"),
        ("", Wish(nodelist="n["), "h20-roce", "is not a list of nodes"),
        ("", Wish(sbatch="--qos=x"), "local", "has no Slurm"),
        ("", Wish(reservation="upd"), "local", "has no Slurm"),
        ("", Wish(partition="cpu"), "h20-roce", "no partition 'cpu'; known: gpu"),
        ("7", Wish(nodelist="n4"), "h20-roce", "n4 not among the nodes of job 7"),
        ("7", Wish(sbatch="--qos=x"), "h20-roce", "does not submit jobs"),
        ("7", Wish(reservation="upd"), "h20-roce", "does not submit jobs"),
        ("7", Wish(partition="cpu"), "h20-roce", "no partition 'cpu'; known: gpu"),
        ("7", Wish(), "mi300x", "partition gpu, which the site does not have"),
    ],
)
def test_what_does_not_fit_is_refused(job, wish, site, message, monkeypatch) -> None:
    """Also what an allocation does not have."""
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    with pytest.raises(BusbarError, match=message):
        target_of(sites.load(site), wish)


def test_a_heterogeneous_job_is_refused(tmp_path: Path, monkeypatch) -> None:
    """A step has the nodes of one component only: the ranks of the others would be missing."""
    line = "JobId=7 HetJobId=7 HetJobOffset=0 JobState=RUNNING Partition=gpu NodeList=n1"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho '{line}'\n")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(BusbarError, match="job 7 is heterogeneous"):
        target_of(SITE, Wish())


def test_the_options_of_sbatch() -> None:
    words = ("--account=ops", "-p big", "'--comment=a b'")
    assert access_of("--account=ops -p big --comment='a b'") == words
    assert access_of("") == ()
    assert Wish(sbatch="-A ops", reservation="a b").access == ("-A ops", "'--reservation=a b'")
    assert Wish(reservation="upd").access == ("--reservation=upd",)
    for wrong in ("ops", "--a='", "--comment='a\nb'"):
        with pytest.raises(BusbarError):
            access_of(wrong)
