# SPDX-License-Identifier: MIT
"""Drifts: found where no step is, not where all nodes drift alike, and shown as what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from busbar.commands import history
from busbar.document import to_json
from busbar.history.drift import drifts_of
from busbar.history.events import Changes, changes_of, find_events
from busbar.history.model import HistoryKey, NightSeries
from busbar.history.statistic import Array
from busbar.report.news import news
from busbar.report.trend import trend

FIRST = 1_790_000_000.0
DAY_S = 86400.0
NIGHTS = 90
LOST = np.linspace(0.0, 0.1, NIGHTS)


def quiet(nights: int = NIGHTS, seed: int = 0) -> Array:
    return 100 * (1 + 0.01 * np.random.default_rng(seed).normal(size=nights))


def series(values: Array, node: str = "n1", unit: str = "GB/s") -> NightSeries:
    days = np.arange(len(values))
    key = HistoryKey("alpha", "gpu", node, "xccl", "busbw", unit)
    return NightSeries(key, FIRST + days * DAY_S, values, np.zeros_like(days), days + 20_000)


def fleet(shared: Array, nodes: int = 12) -> list[NightSeries]:
    """Nodes whose nights all have the factor of the night."""
    return [series(quiet(len(shared), n) * shared, f"n{n:02}") for n in range(nodes)]


def without_n3(found: Sequence[NightSeries]) -> list[NightSeries]:
    """The same, and node n03 loses 10 % beside it."""
    lost = np.concatenate([np.zeros(len(found[0].values) - NIGHTS), LOST])
    return [
        replace(each, values=each.values * (1 - lost)) if each.key.node == "n03" else each
        for each in found
    ]


@pytest.mark.parametrize("before", [0, 180])
def test_a_slow_loss_is_found(before: int) -> None:
    values = quiet(before + NIGHTS)
    values[before:] *= 1 - LOST
    (change,) = drifts_of([series(values)], ())
    assert change.worse
    assert change.weekly is not None
    assert change.until is not None
    assert change.weekly == pytest.approx(-0.1 / NIGHTS * 7, rel=0.3)
    assert change.after < 0.95 * change.before
    assert change.since < change.found <= change.until
    assert change.ratio.high is not None
    assert change.ratio.high < 1


def test_a_longer_time_is_worse() -> None:
    (change,) = drifts_of([series(quiet() * (1 + LOST), unit="us")], ())
    assert change.worse
    assert change.weekly
    assert change.weekly > 0


@pytest.mark.parametrize("seed", range(5))
def test_noise_slow_nights_gaps_and_weeks_do_not_drift(seed: int) -> None:
    values = quiet(365, seed)
    assert not drifts_of([series(values)], ())
    slow = values.copy()
    slow[250::9] *= 0.8  # more of them at the end
    assert not drifts_of([series(slow)], ())
    week = values * np.where(np.arange(365) % 7 > 4, 0.97, 1.0)
    assert not drifts_of([series(week)], ())
    few = series(values)
    kept = np.random.default_rng(seed).random(365) < 0.4
    few = replace(
        few, values=values[kept], times=few.times[kept], days=few.days[kept], provenance=kept * 0
    )
    assert not drifts_of([few], ())


def test_what_all_nodes_lose_is_not_the_fault_of_one() -> None:
    alike = 1 - np.concatenate([np.zeros(180), LOST])
    season = 1 + 0.04 * np.sin(np.arange(365) / 365 * 2 * math.pi)
    for shared in (alike, season):
        nodes = fleet(shared)
        assert drifts_of(nodes[:1], ())
        assert not drifts_of(nodes, ())
        (change,) = drifts_of(without_n3(nodes), ())
        assert change.key.node == "n03"


def test_an_update_of_half_of_the_nodes_is_no_drift_of_the_others() -> None:
    """Nor does it hide the drift of one of them."""
    nodes = [
        replace(each, values=each.values * np.where((np.arange(180) >= 120) & updated, 0.96, 1))
        for each, updated in zip(fleet(np.ones(180)), [True, False] * 6, strict=True)
    ]
    for shown, drifting in ((nodes, set()), (without_n3(nodes), {"n03"})):
        steps = [step for each in shown for step in changes_of(each)]
        assert {step.key.node for step in steps} >= {f"n{n:02}" for n in range(0, 12, 2)}
        assert {each.key.node for each in drifts_of(shown, steps)} == drifting


def test_a_step_is_no_drift() -> None:
    values = quiet(270)
    values[200:] *= 0.9
    one = series(values)
    steps = changes_of(one)
    assert len(steps) == 1
    assert not drifts_of([one], steps)


def test_a_drift_does_not_depend_on_later_nights() -> None:
    values = np.concatenate([quiet(60), quiet(NIGHTS, 1) * (1 - LOST), 90 + quiet(90, 2) / 100])
    (whole,) = drifts_of([series(values)], ())
    night = round((whole.found - FIRST) / DAY_S)
    assert drifts_of([series(values[: night + 1])], ())
    assert not drifts_of([series(values[:night])], ())


def test_a_drift_is_an_event_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = without_n3(fleet(np.ones(NIGHTS)))
    (event,) = find_events(nodes, {})
    assert event.drift
    assert event.worse
    assert event.shared == ("node n03",)
    assert not event.differences
    history.changes(Changes.of([event], nodes))
    said = capsys.readouterr().out
    assert "1 series worse: node n03" in said
    assert "% a week since 2026-09-2" in said
    assert "provenance" not in said
    (row,) = to_json(Changes.of([event], nodes))["events"][0]["changes"]
    assert row["weekly"] < -0.005
    assert row["until"] > row["since"]
    # An event is dated by the night that showed it.
    assert find_events(nodes, {}, event.since)
    assert not find_events(nodes, {}, event.since + DAY_S)
    (item,) = news([event])
    assert item.when.startswith("by a drift, seen 2026-12-")
    assert "% a week" in item.series[0]
    drawn = trend(nodes[3], [event], {})
    assert drawn
    (step,) = drawn.steps
    assert step.until is not None
    assert step.until > step.x
    assert step.y_after > step.y_before
