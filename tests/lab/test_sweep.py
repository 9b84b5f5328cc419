# SPDX-License-Identifier: MIT
"""``busbar sweep run`` on eight nodes: what is slow is named, and faults lose no result."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .fleet import NODES, Fleet

pytestmark = pytest.mark.lab
RANDOM = random.Random()  # noqa: S311 - which link is slow is no secret
TRIALS = int(os.environ.get("BUSBAR_SWEEP_TRIALS", "2"))
"""Of each kind of fault; 20 for a proof."""


@pytest.fixture(scope="module")
def one(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with one NIC per node."""
    fleet = Fleet.start(tmp_path_factory.mktemp("fleet"), nics=1)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="module")
def two(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with two NICs per node."""
    fleet = Fleet.start(tmp_path_factory.mktemp("fleet"), nics=2)
    yield fleet
    fleet.stop()


def results(output: Path) -> list[str]:
    return (output / "results.jsonl").read_text().splitlines()


def test_a_sweep_that_was_ended_resumes_and_names_the_slow_node(
    one: Fleet, tmp_path: Path
) -> None:
    """And nothing else."""
    bad = RANDOM.choice(NODES)
    output = tmp_path / "out"
    with one.slow((bad, 0)):
        sweep = one.sweep(output)
        sweep.wait_for_rounds(2)
        sweep.signal(signal.SIGTERM)
        status, document = sweep.ended(30)
        # Slurm revokes the job at the same time.
        assert re.match("SIGTERM|(Slurm ended )?the job", document["stopped"]), document
        assert status == 143
        assert "counters" not in str(document["notes"]), document
        kept = {line for line in results(output) if '"ok"' in line}
        assert len(kept) >= 8
        assert not one.run("squeue", "--noheader", "--states=RUNNING")
        with (output / "results.jsonl").open("a") as file:
            file.write('{"round": 3, "a": "n1"')  # as a kill in a write leaves it
        status, document = one.sweep(output, "--resume").ended()
    assert (status, document["verdict"]) == (1, "degraded"), str(document)
    found = [(row["kind"], row["id"], row["confirmed"]) for row in document["accused"]]
    assert found == [("node", bad, True)], document
    assert not document["unmeasured"], (document, (output / "results.jsonl").read_text())
    assert kept <= set(results(output))


KINDS = ("node", "two nodes", "none", "leaf", "nic")


@pytest.mark.long
@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_slow_is_named_and_nothing_else(
    kind: str, trial: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Chosen at random."""
    fleet: Fleet = request.getfixturevalue("two" if kind == "nic" else "one")
    expected, links = chosen(kind)
    with fleet.slow(*links):
        _, document = fleet.sweep(tmp_path, "--seed", trial).ended()
    assert {row["id"] for row in document["accused"]} == expected, str(document)
    assert not document["unmeasured"], str(document)
    assert document["verdict"] == ("degraded" if expected else "pass"), str(document)


def chosen(kind: str) -> tuple[set[str], list[tuple[str, int]]]:
    """Return what a sweep must name, and the links to slow down."""
    if kind == "leaf":
        leaf = RANDOM.choice(("leaf1", "leaf2"))
        return {"leaf1-leaf2"}, [(leaf, 0)]
    if kind == "nic":
        node, nic = RANDOM.choice(NODES), RANDOM.randrange(2)
        return {f"{node}/eth{nic}"}, [(node, nic)]
    count = {"node": 1, "two nodes": 2, "none": 0}[kind]
    nodes = RANDOM.sample(NODES, count)
    return set(nodes), [(node, 0) for node in nodes]


@dataclass(frozen=True)
class Fault:
    """What happens to a running sweep, and what it must say."""

    happens: Callable[[Fleet], object]
    verdicts: tuple[str, ...]
    named: bool
    """Whether node n3 is named as gone, accused or not measured; no other is accused ever."""
    resumes: bool = False
    """Whether the sweep ends early, and passes when it is continued."""


def _ranks(signal_name: str) -> Callable[[Fleet], object]:
    """Return what sends a signal to the ranks of n3."""
    script = f"kill -{signal_name} $(pgrep -x sweep)"
    return lambda fleet: fleet.run("sh", "-c", script, node="n3")


def _restart_controller(fleet: Fleet) -> None:
    fleet.run("pkill", "-x", "slurmctld")
    time.sleep(3)
    fleet.run("sh", "-c", "setsid slurmctld -D >/dev/null 2>&1 </dev/null &")


def _fill_disk(fleet: Fleet) -> None:
    """Let no file of the sweep grow; a full disk ends a write in the same way."""
    limit = 'for p in $(pgrep -f "busbar sweep run"); do prlimit --fsize=1500 --pid $p; done'
    fleet.run("sh", "-c", limit)


def _lose_packets(fleet: Fleet) -> None:
    dropped = "-i eth0 -m statistic --mode random --probability 0.1 -j DROP"
    fleet.run("iptables", "-A", "INPUT", *dropped.split(), node="n3")


def _end_step(fleet: Fleet) -> None:
    """End the step and leave the job, as an administrator may; a new step takes over."""
    (step,) = [
        word
        for word in fleet.run("squeue", "--steps", "--noheader", "--format=%i").split()
        if word.rpartition(".")[2].isdigit()
    ]
    fleet.run("scancel", "--signal=KILL", step)


FAULTS = {
    "step": Fault(_end_step, ("pass",), named=False),
    "controller": Fault(_restart_controller, ("pass",), named=False),
    "hang": Fault(_ranks("STOP"), ("failed",), named=True),
    "crash": Fault(_ranks("KILL"), ("failed",), named=True),
    "loss": Fault(_lose_packets, ("failed", "degraded", "unknown"), named=True),
    "scancel": Fault(
        lambda fleet: fleet.run("scancel", "-u", "root"), ("unknown",), named=False, resumes=True
    ),
    "disk": Fault(_fill_disk, ("unknown",), named=False, resumes=True),
    "death": Fault(
        lambda fleet: fleet.run("kill", "-9", (fleet.lab / "nodes/n3/pid").read_text().strip()),
        ("failed",),
        named=True,
    ),
}


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_no_result(name: str, one: Fleet, tmp_path: Path) -> None:
    """The sweep ends in time, names what it could not measure, and goes on if it can."""
    fault, output = FAULTS[name], tmp_path / "out"
    sweep = one.sweep(output)
    sweep.wait_for_rounds(2)
    kept = results(output)
    fault.happens(one)
    try:
        _, document = sweep.ended(150)
    finally:
        one.run("iptables", "-F", "INPUT", node="n3")
    assert document["verdict"] in fault.verdicts, str(document)
    assert set(kept) <= set(results(output))
    accused = {node for row in document["accused"] for node in row["nodes"]}
    # Packets that n3 loses slow down one connection of TCP for long, and others hardly.
    loss = [row for row in document["accused"] if name == "loss" and row["kind"] == "link"]
    others = [row["nodes"] for row in document["accused"] if row not in loss]
    assert all("n3" in row["nodes"] for row in loss), str(document)
    assert all(nodes == ["n3"] for nodes in others), str(document)
    names = [*document["unmeasured"], *accused, *(row["node"] for row in document["gone"])]
    names += [*document["unsteady"], *(row["a"] for row in document["suspects"])]
    if not fault.resumes:
        assert any("n3" in each for each in names) == fault.named, str(document)
    assert bool(document["stopped"]) == fault.resumes, str(document)
    if fault.resumes:
        assert len(document["unmeasured"]) > 0
        _, document = one.sweep(output, "--resume").ended()
        assert (document["verdict"], document["unmeasured"]) == ("pass", []), str(document)
        assert set(kept) <= set(results(output))


@pytest.mark.long
def test_a_link_that_is_down_during_the_launch_costs_no_node(one: Fleet, tmp_path: Path) -> None:
    """Slurm keeps a step of which it cannot start a rank; the sweep waited 300 s for it."""
    sweep = one.sweep(tmp_path / "out")
    while not (tmp_path / "out" / "srun.log").exists() and sweep.process.poll() is None:
        time.sleep(0.01)
    one.run("ip", "link", "set", "n7", "down")
    time.sleep(3)
    one.run("ip", "link", "set", "n7", "up")
    _, document = sweep.ended(60)
    assert [row["id"] for row in document["accused"]] == ["n7/eth0"], str(document)
    assert (document["gone"], document["unmeasured"]) == ([], []), str(document)


@pytest.mark.long
def test_a_job_does_not_outlive_its_sweep(one: Fleet, tmp_path: Path) -> None:
    """It is cancelled without salloc; if nobody is left who could, it has a time limit."""
    sweep = one.sweep(tmp_path / "out", "--deadline", "2m")
    sweep.wait_for_rounds(1)
    assert one.run("squeue", "--noheader", "--format=%l").strip() == "12:00"
    one.run("pkill", "-KILL", "-x", "salloc")
    sweep.process.communicate(timeout=60)
    assert sweep.process.returncode == 128 + 9
    time.sleep(2)
    assert not one.run("squeue", "--noheader", "--states=RUNNING,PENDING")
