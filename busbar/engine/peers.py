# SPDX-License-Identifier: MIT
"""Compare nodes with each other where no band is known: a slow node stands out.

The value of a node is the best of its readings, so that a slow neighbour does not count against
it; where readings have a direction, one value for each. A node is slow if it is below 60 % of the
median of the other nodes, and further below the median of the measurements without it than three
times their scatter (the median absolute deviation of the logarithms, as a standard deviation).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

from busbar.engine.results import Outcome, Result
from busbar.robust import least_of
from busbar.units import format_bytes
from busbar.verdict import Verdict

_FEWEST = 3
"""Of two nodes, nobody can say which one is slow."""
_SHARE = 0.6
_DEVIATIONS = 3
_RATES = ("bandwidth", "busbw")
_RANKS = re.compile(r"\d+->\d+$")
"""The pair of a reading with a direction: the first node of its place sends."""


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
    role: str = ""
    """What the node does, for a reading with a direction: ``sends`` or ``receives``."""


class NodeReading(NamedTuple):
    """A rate of the nodes that took part, and the one that it counts for; empty for each."""

    nodes: tuple[str, ...]
    value: float
    of: str = ""


@dataclass(frozen=True)
class Slow:
    """A node that is slower than the others."""

    node: str
    value: float
    others: tuple[float, ...]
    """The values of the other nodes, sorted."""
    median: float

    def text(self, role: str = "") -> str:
        """One sentence with its number beside those of the others."""
        least, most = self.others[0], self.others[-1]
        return (
            f"{self.node} {f'{role} at' if role else 'reaches'} {self.value:.4g} GB/s, the other"
            f" {len(self.others)} nodes {least:.4g} to {most:.4g}; {_SHARE:.0%} of their median"
            f" ({self.median:.4g}) is the least"
        )


def slow_nodes(readings: Iterable[NodeReading]) -> list[Slow]:
    """Return the nodes that stand out, the slowest first.

    A node of which all partners are slow is not among them: they may be the reason.
    """
    readings = list(readings)
    best = _best(readings)
    low = {node for node in _far_below(best) if _is_no_scatter(node, best[node], readings)}
    names = {
        node
        for reading in readings
        for node in low.intersection(reading.nodes)
        if len(low.intersection(reading.nodes)) < max(len(reading.nodes), 2)
    }
    slow = sorted((best[node], node) for node in names)
    others = tuple(sorted(value for node, value in best.items() if node not in low))
    return [Slow(node, value, others, median(others)) for value, node in slow] if others else []


def doubtful(readings: Iterable[NodeReading]) -> list[str]:
    """Return the nodes to measure again before one of them is named, the slowest first.

    These are all that are far below the fastest: the noise of one node hides that another is slow.
    """
    best = _best(readings)
    if not _far_below(best):
        return []
    least = _SHARE * max(best.values())
    return sorted((node for node, value in best.items() if value < least), key=best.__getitem__)


def _best(readings: Iterable[NodeReading]) -> dict[str, float]:
    """Return the value of each node."""
    best: dict[str, float] = {}
    for reading in readings:
        for node in [reading.of] if reading.of else reading.nodes:
            best[node] = max(reading.value, best.get(node, 0.0))
    return best


def _far_below(best: Mapping[str, float]) -> set[str]:
    """Return the nodes below the least share of the median of the others."""
    if len(best) < _FEWEST:
        return set()
    return {
        node
        for node, value in best.items()
        if value < _SHARE * median(other for name, other in best.items() if name != node)
    }


def _is_no_scatter(node: str, value: float, readings: Iterable[NodeReading]) -> bool:
    """Whether a value is further below the measurements without the node than they scatter.

    A measurement is the best reading of one place: of few nodes there are more pairs than nodes.
    """
    others: dict[tuple[str, ...], float] = {}
    for reading in readings:
        if node not in reading.nodes:
            others[reading.nodes] = max(reading.value, others.get(reading.nodes, 0.0))
    return bool(others) and value < least_of(others.values(), _DEVIATIONS)[1]


def series_of(outcomes: Iterable[Outcome]) -> Mapping[Series, list[NodeReading]]:
    """Return the rates without a band, with their nodes: of each check the largest message."""
    found: dict[Series, list[NodeReading]] = {}
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
                for each, reading in _by_role(series, row):
                    found.setdefault(each, []).append(reading)
    return found


def _by_role(series: Series, row: Result) -> list[tuple[Series, NodeReading]]:
    """Return what one reading says of its nodes: of two, what each sends and receives."""
    nodes, rate = tuple(row.where.split(",")), row.gb_per_s or 0.0
    if len(nodes) != 2 or not _RANKS.match(row.pair):
        return [(series, NodeReading(nodes, rate))]
    return [
        (replace(series, pair="", role=role), NodeReading(nodes, rate, node))
        for role, node in zip(("sends", "receives"), nodes, strict=True)
    ]


def slow_by_series(outcomes: Iterable[Outcome]) -> list[tuple[Series, Slow]]:
    """Return the nodes that stand out in each series."""
    return [
        (series, slow)
        for series, readings in series_of(outcomes).items()
        for slow in slow_nodes(readings)
    ]


def measured_nodes(outcomes: Iterable[Outcome]) -> set[str]:
    """Return the nodes that have a rate."""
    rows = [row for outcome in outcomes for row in outcome.results if row.gb_per_s]
    return {node for row in rows for node in row.where.split(",")}


def outcomes_of_slow(
    outcomes: Sequence[Outcome], confirmed: Container[str] | None = None
) -> list[Outcome]:
    """Return an outcome for each check in which nodes stand out.

    A node is degraded if it is among those that were measured again, else unknown: on a busy
    machine a first reading may be slow. None takes the first readings.
    """
    found: dict[tuple[str, str, str], Outcome] = {}
    for series, slow in slow_by_series(outcomes):
        place = (series.check, series.partition, series.environment)
        first = next(o for o in outcomes if (o.check, o.partition, o.environment) == place)
        sure = confirmed is None or slow.node in confirmed
        text = f"{format_bytes(series.bytes)}: {slow.text(series.role)}"
        row = Result(
            series.check,
            Verdict.DEGRADED if sure else Verdict.UNKNOWN,
            where=slow.node,
            pair=series.pair,
            metric=series.metric,
            buffers=series.buffers,
            bytes=series.bytes,
            gb_per_s=slow.value,
            message=text if sure else f"{text}; it was not measured again",
        )
        outcome = found.get(place) or replace(first, results=(), causes=(), notes=(), nodes="")
        nodes = ",".join(dict.fromkeys(filter(None, (*outcome.nodes.split(","), slow.node))))
        found[place] = replace(outcome, results=(*outcome.results, row), nodes=nodes)
    return list(found.values())
