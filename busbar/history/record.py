# SPDX-License-Identifier: MIT
"""What the history keeps of the outcome of a check, inside ReFrame's report of the test case.

ReFrame's own performance variables have only readings with a band, without the series that they
are of. A check therefore has a variable ``busbar``, which ReFrame stores with its other ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from busbar.engine.results import Outcome, Result
from busbar.history.model import Bounds, Key
from busbar.history.store import Reading
from busbar.site.calibration import SeriesKey
from busbar.units import format_bytes

VARIABLE = "busbar"
"""The variable of a check."""


@dataclass(frozen=True)
class Row:
    """One reading."""

    node: str
    metric: str
    unit: str
    value: float
    low: float | None = None
    typical: float | None = None
    high: float | None = None
    limit: float | None = None
    calibrated: bool = False
    model: float | None = None
    series: SeriesKey | None = None


@dataclass(frozen=True)
class Record:
    """The readings of one outcome and what they were measured with."""

    check: str
    partition: str
    lane: str
    delivery: str
    rows: tuple[Row, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, outcome: Outcome) -> Record:
        """Return what is kept of an outcome."""
        return cls(
            check=outcome.check.partition(" ")[0],
            partition=outcome.partition,
            lane=outcome.lane,
            delivery=outcome.delivery,
            rows=tuple(row for result in outcome.results for row in rows_of(result)),
            provenance=dict(outcome.provenance),
        )

    @classmethod
    def parse(cls, data: object) -> Record:
        """Return a stored record; raise ``ValueError`` for anything else."""
        return TypeAdapter(cls).validate_python(data)

    def to_json(self) -> dict[str, Any]:
        """Return what ReFrame stores."""
        return asdict(self)

    def readings(self, site: str, time: float) -> Iterator[Reading]:
        """Yield the readings as the store takes them."""
        for row in self.rows:
            yield Reading(
                Key(
                    site=site,
                    partition=self.partition,
                    node=row.node,
                    check=self.check,
                    metric=row.metric,
                    unit=row.unit,
                    lane=self.lane,
                    delivery=self.delivery,
                ),
                time,
                row.value,
                self.provenance,
                Bounds(row.low, row.typical, row.high, row.limit, row.calibrated, row.model),
                row.series,
            )


def rows_of(result: Result) -> Iterator[Row]:
    """Yield what is kept of a result: nothing if it is not a reading."""
    if result.value is not None and result.value > 0 and result.bytes is not None:
        metric = metric_of(result.metric, result.pair, result.buffers, result.bytes, result.series)
        yield Row(
            node=result.where,
            metric=metric,
            unit=result.unit,
            value=result.value,
            low=result.low,
            typical=result.typical,
            high=result.high,
            limit=result.limit,
            calibrated=result.calibrated,
            model=result.model,
            series=result.series,
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
