# SPDX-License-Identifier: MIT
"""Compare nodes with each other where no band is known: a slow node stands out.

The value of a node is the best of its readings, so that a slow neighbour does not count against
it. A node is slow if it is below 60 % of the median of all nodes, and further below it than three
times their scatter (the median absolute deviation of the logarithms, as a standard deviation).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from busbar.judge.results import Outcome, Result
from busbar.units import format_bytes
from busbar.verdict import Verdict

_FEWEST = 3
"""Of two nodes, nobody can say which one is slow."""
_SHARE = 0.6
_DEVIATIONS = 3
_NORMAL = 1.4826
"""The standard deviation of a normal distribution by its median absolute deviation."""
_RATES = ("bandwidth", "busbw")


@dataclass(frozen=True)
class Series:
    """What readings must share to be compared."""

    check: str
    partition: str
    environment: str
    metric: str
    buffers: str
    pair: str
    bytes: int


@dataclass(frozen=True)
class Slow:
    """A node that is slower than the others."""

    node: str
    value: float
    others: tuple[float, ...]
    """The values of the other nodes, sorted."""
    median: float

    @property
    def text(self) -> str:
        """One sentence with its number beside those of the others."""
        least, most = self.others[0], self.others[-1]
        return (
            f"{self.node} reaches {self.value:.4g} GB/s, the other {len(self.others)} nodes"
            f" {least:.4g} to {most:.4g}; {_SHARE:.0%} of their median ({self.median:.4g}) is the"
            " least"
        )


def slow_nodes(readings: Iterable[tuple[Sequence[str], float]]) -> list[Slow]:
    """Return the nodes that stand out, the slowest first.

    Each reading is a rate with the nodes that took part.
    """
    best: dict[str, float] = {}
    for nodes, value in readings:
        for node in nodes:
            best[node] = max(value, best.get(node, 0.0))
    if len(best) < _FEWEST or not all(value > 0 for value in best.values()):
        return []
    middle = median(best.values())
    distances = {node: math.log(middle / value) for node, value in best.items()}
    scatter = _NORMAL * median(abs(distance) for distance in distances.values())
    least = max(-math.log(_SHARE), _DEVIATIONS * scatter)
    slow = sorted((value, node) for node, value in best.items() if distances[node] > least)
    names = {node for _, node in slow}
    others = tuple(sorted(value for node, value in best.items() if node not in names))
    return [Slow(node, value, others, median(others)) for value, node in slow] if others else []


def series_of(outcomes: Iterable[Outcome]) -> Mapping[Series, list[tuple[list[str], float]]]:
    """Return the rates without a band, with their nodes: of each check the largest message."""
    found: dict[Series, list[tuple[list[str], float]]] = {}
    for outcome in outcomes:
        rows = [
            row
            for row in outcome.results
            if row.gb_per_s and row.metric in _RATES and row.low is None and row.where
        ]
        largest = max((row.bytes or 0 for row in rows), default=0)
        for row in rows:
            if row.bytes == largest:
                place = (outcome.check, outcome.partition, outcome.environment)
                series = Series(*place, row.metric, row.buffers, row.pair, largest)
                found.setdefault(series, []).append((row.where.split(","), row.gb_per_s or 0.0))
    return found


def slow_by_series(outcomes: Iterable[Outcome]) -> list[tuple[Series, Slow]]:
    """Return the nodes that stand out in each series."""
    return [
        (series, slow)
        for series, readings in series_of(outcomes).items()
        for slow in slow_nodes(readings)
    ]


def outcomes_of_slow(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return a degraded outcome for each check in which nodes stand out."""
    found: dict[tuple[str, str, str], Outcome] = {}
    for series, slow in slow_by_series(outcomes):
        place = (series.check, series.partition, series.environment)
        first = next(o for o in outcomes if (o.check, o.partition, o.environment) == place)
        row = Result(
            series.check,
            Verdict.DEGRADED,
            where=slow.node,
            pair=series.pair,
            metric=series.metric,
            buffers=series.buffers,
            bytes=series.bytes,
            gb_per_s=slow.value,
            message=f"{format_bytes(series.bytes)}: {slow.text}",
        )
        outcome = found.get(place) or replace(first, results=(), causes=(), notes=(), nodes="")
        nodes = ",".join(filter(None, (outcome.nodes, slow.node)))
        found[place] = replace(outcome, results=(*outcome.results, row), nodes=nodes)
    return list(found.values())
