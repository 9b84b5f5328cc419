# SPDX-License-Identifier: MIT
"""The figures of the statistics, so that no constant of theirs changes unnoticed.

The constants were tuned on simulated years (`tests/bench`), which take hours. After such a run
``GOLDEN=write pytest tests/history/test_pinned.py`` stores the figures of the new ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import astuple
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from busbar.history.drift import drifts_of
from busbar.history.events import changes_of
from busbar.history.model import HistoryKey, NightSeries, ratio_of
from busbar.history.statistic import Array, Noise, common_noise, scan

FIGURES = Path(__file__).parents[1] / "golden" / "statistics.json"
NOISES = (
    Noise(),
    Noise(known=True, correlation=0.3),
    Noise(known=True, heavy=True),
    Noise(known=True, correlation=0.1, far=True),
)
KINDS = ("normal", "heavy", "follows", "week", "slow nights", "few digits")
CASES = ((30, 0.3), (75, -0.05), (110, 0.0), (130, -0.02), (260, -0.04))
DAY_S = 86400.0
FIRST = 20_000


def noise(kind: str, nights: int, seed: int) -> Array:
    """Deviations of about 1 %."""
    random = np.random.default_rng(seed)
    values = random.normal(size=nights)
    if kind == "heavy":
        values = random.standard_t(3, size=nights)
    elif kind == "follows":
        for before, after in pairwise(range(nights)):
            values[after] = 0.5 * values[before] + 0.87 * values[after]
    elif kind == "week":
        values += 2 * np.sin(np.arange(nights) % 7)
    elif kind == "slow nights":
        values[random.random(nights) < 0.03] -= 20
    elif kind == "few digits":
        values = np.round(values / 3)
    return np.asarray(values / 100, dtype=np.float64)


def series(values: Array, days: NDArray[np.int64], node: str = "n0") -> NightSeries:
    key = HistoryKey("alpha", "gpu", node, "xccl", "busbw", "GB/s")
    return NightSeries(
        key, (days - FIRST) * DAY_S, values, np.zeros(len(days), dtype=np.int64), days
    )


def fleet(kind: str, nights: int, step: float) -> Iterator[NightSeries]:
    """Nodes of which the first has a step and the second a drift; every ninth night is missing."""
    for node in range(12):
        values = 100 * (1 + noise(kind, nights, node))
        if node == 0:
            values[-8:] *= 1 + step
        if node == 1:
            values *= 1 + step * np.linspace(0, 1, nights)
        days = np.arange(nights) + FIRST
        night = np.arange(nights)
        # Half of the weeks of one node lack their ends.
        kept = (night % 9 != node % 9) & ((node != 2) | (night % 14 < 9))
        yield series(values[kept], days[kept], f"n{node}")


def figures(kind: str, nights: int, step: float) -> Iterator[float]:
    nodes = list(fleet(kind, nights, step))
    some = NOISES[len(kind + str(nights)) % len(NOISES)]
    for known in (NOISES[0], some):
        for each in nodes[:2]:
            found = scan(each.values, each.days, 5000 if known is some else 1, known)
            yield from (found.score.sum(), np.abs(found.score).sum(), found.window.sum())
        steps = [change for each in nodes[:2] for change in changes_of(each, 500, known)]
        for change in steps + drifts_of(nodes, steps, 500, known):
            yield from (change.since / DAY_S, change.found / DAY_S, change.before, change.after)
    yield from map(
        float, astuple(common_noise([n.values for n in nodes], [n.days for n in nodes]))
    )
    yield from astuple(ratio_of(nodes[0].values[:-8], nodes[0].values[-8:]))


def test_the_figures_are_those_that_were_tuned() -> None:
    """Of each case, how many there are, their sum and that of their squares."""
    now = {}
    for kind, (nights, step) in product(KINDS, CASES):
        row = np.array(list(figures(kind, nights, step)))
        now[f"{kind}, {nights} nights"] = [len(row), row.sum(), (row**2).sum()]
    if os.environ.get("GOLDEN") == "write":
        FIGURES.write_text(json.dumps(now, indent=0) + "\n")
    stored = json.loads(FIGURES.read_text())
    assert now == {name: pytest.approx(row, rel=1e-7) for name, row in stored.items()}
