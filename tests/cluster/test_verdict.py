# SPDX-License-Identifier: MIT
"""The verdict of a sweep: what is open is never a pass."""

from __future__ import annotations

from dataclasses import replace

from busbar.cluster.measure.run import SweepOutcome
from busbar.cluster.sweep.accusation import Accusation
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.rows import MeasuredPair, PairState
from busbar.cluster.sweep.second_pass import SuspectPair
from tests.cases import cases

CLEAN = Analysis(accused=(), suspects=(), unmeasured=())
SLOW = Accusation("n3", "node", "slow", ("n3",))


def row(a: str, b: str, rate: float | None, state: PairState = PairState.OK) -> MeasuredPair:
    return MeasuredPair(1, a, b, None, rate, state)


GOOD = [row(f"n{a}", f"n{b}", 1.0) for a in range(8) for b in range(a)]
AT_TIMES = [row("n3", f"n{n}", 0.2) for n in (1, 2, 4)]


@cases(
    ("changes", "verdict"),
    [
        ({}, "pass"),
        ({"judged": False}, "unjudged"),
        ({"rows": [], "analysis": None}, "not run"),
        ({"rows": [row("n1", "n2", None, PairState.SKIPPED)]}, "not run"),
        ({"rows": [row("n1", "n2", None, PairState.TIMEOUT)]}, "failed"),
        ({"rows": [*GOOD, row("n1", "n2", None, PairState.WRONG)]}, "failed"),
        ({"rows": [*GOOD, row("n1", "n2", None, PairState.TIMEOUT)]}, "pass"),
        (
            {
                "rows": [*GOOD, row("n1", "n2", None, PairState.TIMEOUT)],
                "analysis": replace(CLEAN, unmeasured=("n1",)),
            },
            "failed",
        ),
        ({"gone": {"n3": "down"}}, "failed"),
        ({"analysis": replace(CLEAN, accused=(SLOW,))}, "degraded"),
        ({"analysis": replace(CLEAN, suspects=(SuspectPair("n1", "n2"),))}, "unknown"),
        ({"analysis": replace(CLEAN, unmeasured=("n3",))}, "unknown"),
        ({"absent": {"n3": "is not in this job"}}, "unknown"),
        ({"stopped": "SIGTERM ended the sweep"}, "unknown"),
        ({"rows": [*GOOD, *AT_TIMES]}, "unknown"),
        ({"rows": [*GOOD, *AT_TIMES[:2]]}, "pass"),
    ],
)
def test_what_is_open_is_no_pass(changes: dict[str, object], verdict: str) -> None:
    known: dict[str, object] = {"analysis": CLEAN, "rows": GOOD, "judged": True} | changes
    outcome = SweepOutcome(("n1", "n2"), **known)  # type: ignore[arg-type]
    assert outcome.verdict == verdict


def test_the_node_that_is_slow_at_times_is_named_and_not_its_partners() -> None:
    assert SweepOutcome((), CLEAN, rows=[*GOOD, *AT_TIMES]).unsteady == ["n3"]


def test_pairs_of_a_large_fleet_collide_at_times() -> None:
    """Where four readings in a thousand are slow, some node has three of them."""
    fleet = [
        row(f"n{a}", f"n{(a + step) % 600}", 1.0) for a in range(600) for step in range(1, 30)
    ]
    slow = [row(f"n{a}", f"n{a + 40}", 0.2) for a in range(0, 560, 8)]
    often = [row("n3", f"n{n}", 0.2) for n in (1, 2, 4)]
    assert SweepOutcome((), CLEAN, rows=[*fleet, *slow, *often]).unsteady == []
    more = [row("n3", f"n{n}", 0.2) for n in range(10, 20)]
    assert SweepOutcome((), CLEAN, rows=[*fleet, *slow, *more]).unsteady == ["n3"]
