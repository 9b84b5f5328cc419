# SPDX-License-Identifier: MIT
"""Readings with their provenance: what is kept of a check, and what the store takes.

ReFrame's own performance variables have only readings with a band, without the series that they
are of. A check therefore has a variable ``busbar``, which ReFrame stores in its report of the test
case with its other ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from busbar.document import written
from busbar.engine.results import Outcome, Result
from busbar.history.model import HistoryBounds, HistoryKey
from busbar.site.calibration import SeriesKey
from busbar.units import format_bytes

VARIABLE = "busbar"
"""The variable of a check."""


@dataclass(frozen=True, kw_only=True)
class Measured(HistoryBounds):
    """One reading."""

    node: str
    metric: str
    unit: str
    value: float
    series: SeriesKey | None = None
    """The series as the calibration of a site has it; None for readings of others."""


@dataclass(frozen=True, kw_only=True)
class HistoryRecord:
    """The readings of one outcome and what they were measured with."""

    check: str
    partition: str = ""
    lane: str = ""
    delivery: str = ""
    rows: tuple[Measured, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    site: str = field(default="", metadata=written(hidden=True))
    time: float = field(default=0.0, metadata=written(hidden=True))
    """Seconds since 1970. ReFrame states site and time of each test case."""

    @classmethod
    def of(cls, outcome: Outcome) -> HistoryRecord:
        """Return what is kept of an outcome."""
        return cls(
            check=outcome.check.partition(" ")[0],
            partition=outcome.partition,
            lane=outcome.lane,
            delivery=outcome.delivery,
            rows=tuple(row for result in outcome.results for row in measured(result)),
            provenance=dict(outcome.provenance),
        )

    def key(self, row: Measured) -> HistoryKey:
        """Return the series of a reading."""
        return HistoryKey(
            site=self.site,
            partition=self.partition,
            node=row.node,
            check=self.check,
            metric=row.metric,
            unit=row.unit,
            lane=self.lane,
            delivery=self.delivery,
        )


def measured(result: Result) -> Iterator[Measured]:
    """Yield what is kept of a result: nothing if it is not a reading."""
    if result.value is not None and result.value > 0 and result.bytes is not None:
        metric = metric_of(result.metric, result.pair, result.buffers, result.bytes, result.series)
        yield Measured(
            node=result.where,
            metric=metric,
            unit=result.unit,
            value=result.value,
            series=result.series,
            **vars(HistoryBounds.of(result)),
        )


def metric_of(metric: str, pair: str, buffers: str, nbytes: int, series: SeriesKey | None) -> str:
    """Return what a reading is of in words: ``all_reduce busbw D D 16 MiB``."""
    names, half = [metric, pair], ""
    if series:
        half = {True: "in place", False: "out of place", None: ""}[series.in_place]
        names = [series.bench, series.operation, *names]
    # Operation and pair repeat each other: "fi_pingpong" and "fi_pingpong tcp".
    words = dict.fromkeys(" ".join(names).replace(half, "").split())
    return " ".join(filter(None, [*words, buffers, half, format_bytes(nbytes)]))
