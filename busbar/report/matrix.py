# SPDX-License-Identifier: MIT
"""The pairs of a node as a heat map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busbar.engine.results import Result
from busbar.report.curve import reading_text
from busbar.report.rows import ends_of
from busbar.report.scale import drawable, number
from busbar.verdict import Verdict, worst

_STEPS = 5
_LEAST_SPAN = 0.1
"""The shares that the colours span at least: noise of one percent must not look like a fault."""
_LEAST_SPAN_WITHOUT_BAND = 0.4
"""Latencies of the pairs of a healthy node differ by a quarter (`tests/data/h100x4`)."""
_WITH_NUMBERS = 8
"""Ends up to which a cell has room for its number."""
_MOST_PLOT = 300
_LARGEST_CELL = 48
_MOST_LABELS = 16


@dataclass(frozen=True)
class Cell:
    """One ordered pair."""

    column: int
    row: int
    step: int
    """0 for the best colour, 4 for the worst."""
    label: str
    """The number, if there is room for it."""
    text: str
    verdict: Verdict


@dataclass(frozen=True)
class MatrixPicture:
    """The picture of the pairs of one node, one metric and one size."""

    title: str
    summary: str
    unit: str
    colours: str
    """What the colours mean."""
    span: str
    """What the last of the colours means, in percent."""
    side: float
    """Of a cell."""
    count: int
    """The columns."""
    sources: tuple[int, ...]
    """The end of each row."""
    every: int
    """How many ends share a label."""
    cells: tuple[Cell, ...]
    worst: Verdict
    least: float
    """The share of its reference that the worst pair has."""


def matrix(title: str, results: Sequence[Result]) -> MatrixPicture | None:
    """Return the picture of readings of one metric, size and node; None for fewer than 3 ends."""
    readings = {ends: row for row in results if (ends := ends_of(row))}
    if len({end for ends in readings for end in ends}) < 3:
        return None
    count = 1 + max(max(ends) for ends in readings)
    shares, colours = _shares(readings)
    banded = all(drawable(row.typical) for row in readings.values())
    span = max(1 - min(shares.values()), _LEAST_SPAN if banded else _LEAST_SPAN_WITHOUT_BAND)
    steps = {
        ends: min(_STEPS - 1, int(_STEPS * (1 - share) / span)) for ends, share in shares.items()
    }
    sources = sorted({source for source, _ in readings})
    side = min(_LARGEST_CELL, _MOST_PLOT / count)
    unit = next(iter(readings.values())).unit
    ordered = sorted(readings, key=lambda ends: shares[ends])
    lowest = readings[ordered[0]]
    return MatrixPicture(
        title=title,
        summary=f"{len(readings)} pairs of {count}; the worst is {reading_text(lowest)};"
        f" the best is {reading_text(readings[ordered[-1]])}",
        unit=unit,
        colours=colours,
        span=f"{span:.0%}",
        side=round(side, 2),
        count=count,
        sources=tuple(sources),
        every=math.ceil(count / _MOST_LABELS),
        cells=tuple(
            Cell(
                column=target,
                row=sources.index(source),
                step=steps[source, target],
                label=number(row.value, 3) if count <= _WITH_NUMBERS else "",
                text=reading_text(row),
                verdict=row.verdict,
            )
            for (source, target), row in readings.items()
        ),
        worst=worst(row.verdict for row in readings.values()),
        least=min(shares.values()),
    )


def _shares(
    readings: Mapping[tuple[int, int], Result],
) -> tuple[dict[tuple[int, int], float], str]:
    """Return the quality of each pair, 1 for the expected or best rate, and its meaning.

    Pairs with different links have different bands, so each is compared with its own.
    """
    rows = list(readings.values())
    latency = rows[0].metric == "latency"
    typical = all(drawable(row.typical) for row in rows)
    best = min(row.value or 1 for row in rows) if latency else max(row.value or 1 for row in rows)
    shares = {}
    for ends, row in readings.items():
        reference = (row.typical if typical else best) or 1
        value = row.value or 1
        shares[ends] = min(1.0, reference / value if latency else value / reference)
    meaning = "typical reading of its links" if typical else "best pair"
    return shares, f"{'longer' if latency else 'less'} than the {meaning}"
