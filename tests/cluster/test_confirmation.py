# SPDX-License-Identifier: MIT
"""A link is accused only if it is slow again later, while its ends are fast with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from busbar import site as sites
from busbar.cluster.measure import run
from busbar.cluster.measure.program import Program
from busbar.cluster.measure.rounds import SweepTimes
from busbar.cluster.measure.run import SweepRequest, SweepRunner
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair
from busbar.slurm.topology import SwitchTopology

NODES = [f"n{number}" for number in range(1, 9)]
TOPOLOGY = SwitchTopology({node: f"leaf{1 + n // 4}" for n, node in enumerate(NODES)})
LINK = {"n1", "n3"}
FIRST_PASS = 5


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], run.SweepOutcome]:
    """Runs a sweep of eight nodes that do not exist; pairs across leaves have a twentieth."""

    def measured(share: Callable[[int, set[str]], float]) -> run.SweepOutcome:
        class Fleet:
            times = SweepTimes()
            gone: ClassVar[dict[str, str]] = {}
            absent: ClassVar[dict[str, str]] = {}
            stopped = ""

            def __init__(self, program: object, nodes: object, store: Any, **_: object) -> None:
                self.store = store

            def measure(self, plan: Iterable[PlannedPair]) -> None:
                self.store.add(
                    MeasuredPair(row.round, row.a, row.b, None, rate or None, state)
                    for row in plan
                    for uplink in [TOPOLOGY.leaf_of[row.a] != TOPOLOGY.leaf_of[row.b]]
                    for rate in [share(row.round, {row.a, row.b})]
                    for state in [PairState.OK if rate else PairState.TIMEOUT]
                    for rate in [0.05 * rate if uplink else rate]
                )

            def leave_out(self, *_: object) -> None: ...
            def close(self) -> None: ...

        monkeypatch.setattr(run, "Rounds", Fleet)
        request = SweepRequest(sites.load("local"), TOPOLOGY, FIRST_PASS, 0, 60, limit=1.0)
        found = SweepRunner(request, NODES, tmp_path, print)
        found.prepare(resume=False)
        found.measure(cast("Program", type("P", (), {"seconds": 1})), NODES)
        return found.conclude()

    return measured


def accused(outcome: run.SweepOutcome) -> dict[str, bool]:
    assert outcome.analysis
    return {one.id: one.id in outcome.confirmed for one in outcome.analysis.accused}


def test_a_slow_link_is_confirmed(sweep: Callable[[Any], run.SweepOutcome]) -> None:
    outcome = sweep(lambda _, ends: 0.5 if ends == LINK else 1.0)
    assert accused(outcome) == {"n1-n3": True, "leaf1-leaf2": False}


def test_what_disturbs_a_link_for_a_while_does_not_accuse_it(
    sweep: Callable[[Any], run.SweepOutcome],
) -> None:
    """The second pass alone shows a slow link: it measures the pair six times in a row."""
    disturbed = range(FIRST_PASS + 7)
    outcome = sweep(lambda number, ends: 0.5 if ends == LINK and number in disturbed else 1.0)
    assert accused(outcome) == {"leaf1-leaf2": False}
    assert outcome.verdict == "degraded"


def test_a_slow_end_is_not_taken_for_a_slow_link(sweep: Callable[[Any], run.SweepOutcome]) -> None:
    """Which the second pass, that measures it with one partner only, cannot tell."""
    outcome = sweep(
        lambda number, ends: 0.5 if "n1" in ends and (number > FIRST_PASS or ends == LINK) else 1.0
    )
    assert accused(outcome) == {"n1": True, "leaf1-leaf2": False}


@pytest.mark.parametrize("last", [FIRST_PASS, FIRST_PASS + 20])
def test_a_node_that_failed_in_the_plan_is_asked_again(
    sweep: Callable[[Any], run.SweepOutcome], last: int
) -> None:
    """Once: if it has failed by chance, it is measured then."""
    outcome = sweep(lambda number, ends: 1.0 - ("n1" in ends and 2 < number <= last))
    assert outcome.analysis
    assert ("n1" in outcome.analysis.unmeasured) == (last > FIRST_PASS)
    asked = {row.round for row in outcome.rows if "n1" in (row.a, row.b)}
    assert len([number for number in asked if number > FIRST_PASS]) == 4
