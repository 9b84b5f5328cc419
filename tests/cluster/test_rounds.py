# SPDX-License-Identifier: MIT
"""Rounds, with a double of the step that a cluster would run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from busbar import site as sites
from busbar.cluster.measure import rounds as module
from busbar.cluster.measure.program import Program, Rail
from busbar.cluster.measure.rounds import RoundLimits, Rounds
from busbar.cluster.measure.step import PairRate
from busbar.cluster.measure.store import Store
from busbar.cluster.sweep.rows import PairState, PlannedPair
from busbar.delivery.choice import Choice
from busbar.delivery.environments import environments

NODES = ("n1", "n2", "n3")
PLAN = [PlannedPair(1, "n1", "n2"), PlannedPair(2, "n1", "n3")]
SITE = sites.load("h20-roce")
PROGRAM = Program(
    Path("sweep"),
    environments(SITE, Choice(declared=True), 1)[0],
    (Rail("gpu0"), Rail("gpu1")),
    1 << 20,
    0.25,
)


class Cluster:
    """What the steps of a test do."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.hangs = ""


class Step:
    """As `busbar.cluster.measure.step.PairStep`."""

    cluster: Cluster

    def __init__(self, program: Program, nodes: Sequence[str], *_: Any, **__: Any) -> None:
        self.requested = self.nodes = tuple(nodes)
        self.started = set(nodes)
        self.errors: list[str] = []
        self.ended = False
        self.cluster.steps.append(self)

    def wait_for_ranks(self, _: float) -> bool:
        return True

    def pair_up(self, pairs: Iterable[tuple[str, str]]) -> None: ...

    def measure(
        self, expected: set[tuple[str, int]], *_: float
    ) -> dict[tuple[str, int], PairRate]:
        rate = PairRate(1, 0, 0, 2.0, 0, "")
        return {key: rate for key in expected if key[0] != self.cluster.hangs}

    def close(self, *, kill: bool = False) -> None:
        self.ended = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(Step, "cluster", made, raising=False)
    monkeypatch.setattr(module, "PairStep", Step)
    monkeypatch.setattr(module, "job_ended", lambda: "")
    monkeypatch.setattr(module, "answering", lambda nodes, _=0: set(nodes))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.begin(PLAN)
    return made


@pytest.fixture
def rounds(cluster: Cluster, store: Store, tmp_path: Path) -> Rounds:
    limits = RoundLimits(launch=9, reading=9, end=time.monotonic() + 9000)
    return Rounds(PROGRAM, NODES, store, limits=limits, log=tmp_path / "log", show=lambda _: None)


FLAP = """\
srun: cluster configuration lacks support for cpu binding
[1795674510.012037] [n3:173  :0]     ucp_context.c:1969 UCX  WARN  UCP API version is incompatible
srun: error: task 3 launch failed: Slurmd could not connect IO
"""
"""What srun 22.05.8 printed when the link of a node was down for 3 s, with another rank."""
ON_NODE = (
    "srun: error: Task launch for StepId=9.1 failed on node n2: Communication connection failure"
)
NO_NODE = "srun: error: timeout waiting for task launch, started 2 of 6 tasks"


@pytest.mark.parametrize(
    ("log", "failures", "up", "gone"),
    [
        (FLAP, 1, True, {}),
        (FLAP, 2, True, {"n2": "did not start or answer 2 times"}),
        (FLAP, 1, False, {"n2": "cannot start processes: down or unreachable"}),
        (ON_NODE, 1, False, {"n2": "cannot start processes: down or unreachable"}),
        (NO_NODE, 1, True, {}),
        (FLAP.replace("task 3", "task 1"), 1, True, {}),
    ],
)
def test_a_start_that_srun_calls_failed_is_repeated_at_once(
    rounds: Rounds,
    cluster: Cluster,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    *,
    log: str,
    failures: int,
    up: bool,
    gone: dict[str, str],
) -> None:
    """Slurm kept the step, and the sweep waited until the 300 s of its launch were over.

    A node is named that has not started: the order of Slurm's ranks may be another one.
    """
    shown: list[str] = []
    rounds.show = shown.append

    def wait(step: Step, _: float) -> bool:
        if len(cluster.steps) <= failures:
            step.started, step.nodes = {"n1", "n3"}, ()
            with rounds.log.open("a") as file:
                file.write(log)
            return False
        return True

    monkeypatch.setattr(Step, "wait_for_ranks", wait)
    monkeypatch.setattr(module, "answering", lambda nodes, _=0: {*nodes} if up else set())
    rounds.measure(PLAN)
    assert "1 of 3 nodes did not start the pair program: n2 (srun: error: " in shown[0]
    assert rounds.gone == gone
    assert len(cluster.steps) == failures + 1
    assert (states(store)[1, "n1", "n2", None] is PairState.OK) == (not gone)
    assert states(store)[2, "n1", "n3", None] is PairState.OK


def states(store: Store) -> dict[tuple[int, str, str, str | None], PairState]:
    return {(row.round, row.a, row.b, row.nic): row.state for row in store.rows}


def test_a_node_that_hangs_is_listed_and_left_out(
    rounds: Rounds, store: Store, cluster: Cluster
) -> None:
    cluster.hangs = "n3"
    rounds.measure([*PLAN, PlannedPair(3, "n2", "n3"), PlannedPair(4, "n1", "n2")])
    found = states(store)
    assert {state for key, state in found.items() if "n3" not in key} == {PairState.OK}
    assert {state for key, state in found.items() if "n3" in key} == {
        *(PairState.TIMEOUT, PairState.DEAD)
    }
    assert rounds.gone.keys() == {"n3"}
    assert len(cluster.steps) == 3


@pytest.mark.parametrize("down", [True, False])
def test_a_node_that_does_not_start_is_asked_before_the_launch_is_over(
    rounds: Rounds, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    """If it is down the others go on without it; else there is time until the launch is over."""
    asked, waits = [], []
    rounds.log.touch()

    def wait(step: Step, deadline: float) -> bool:
        waits.append(deadline - time.monotonic())
        if "n2" in step.requested and (down or len(waits) < 2):
            step.started, step.nodes = {"n1", "n3"}, ("n1", "n3")
            return False
        return True

    def answering(nodes: set[str], seconds: float) -> set[str]:
        asked.append((sorted(nodes), seconds))
        return set() if down else nodes

    monkeypatch.setattr(Step, "wait_for_ranks", wait)
    monkeypatch.setattr(module, "answering", answering)
    rounds.measure(PLAN)
    assert asked == [(["n2"], 10)]
    assert waits[0] < 8.1
    assert rounds.gone.keys() == ({"n2"} if down else set())
    assert len(cluster.steps) == 1 + down


def test_a_step_that_ends_between_two_rounds_is_replaced(rounds, store, cluster) -> None:
    """Its pairs used to be skipped, and those of all rounds that followed."""
    rounds.measure(PLAN[:1])
    cluster.steps[0].ended = True
    rounds.measure(PLAN[1:])
    assert len(cluster.steps) == 2
    assert states(store)[2, "n1", "n3", None] is PairState.OK
    assert not rounds.gone


def test_a_step_that_ends_before_the_first_pass_of_a_round_is_replaced(
    rounds: Rounds, store: Store, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(step: Step, _: Iterable[tuple[str, str]]) -> None:
        step.ended = step is cluster.steps[0]

    monkeypatch.setattr(Step, "pair_up", die)
    rounds.measure(PLAN)
    assert len(cluster.steps) == 2
    assert {(key[0], state) for key, state in states(store).items()} == {
        *((1, PairState.OK), (2, PairState.OK))
    }
    assert not rounds.gone
