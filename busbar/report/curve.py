# SPDX-License-Identifier: MIT
"""The picture of a benchmark over its sizes: what was measured, the band and the limit."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from busbar.engine.results import Result
from busbar.report.rows import quality
from busbar.report.scale import (
    LogScale,
    Tick,
    drawable,
    number,
    size_ticks,
    value_ticks,
    values_scale,
)
from busbar.units import format_bytes
from busbar.verdict import Verdict, worst
from busbar.words import counted, grouped

WIDTH, HEIGHT = 360, 216
"""Text keeps its size on a telephone; wide screens show several pictures beside each other."""
LEFT, RIGHT, TOP, BOTTOM = 46, 338, 22, 188
_MOST_LINES = 6
"""Lines that an eye can still follow; of more, the range and the median are drawn."""
_MOST_MARKS = 24


@dataclass(frozen=True)
class CurveMark:
    """One reading."""

    x: float
    y: float
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class CurvePicture:
    """Geometry and text of the picture; the template draws it."""

    title: str
    unit: str
    summary: str
    """What the picture shows, for those who do not see it."""
    band: str
    """Points of the area, empty without a band."""
    limit: str
    range: str
    """Points of the area between the least and the largest reading; empty for few lines."""
    lines: tuple[str, ...]
    marks: tuple[CurveMark, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    left_out: int
    """Readings that have no place on the axes."""
    worst: Verdict


def line_of(row: Result) -> tuple[str, str]:
    """Return what tells lines of one picture apart: where, and between what."""
    return (row.where, row.pair)


def curve(title: str, results: Sequence[Result]) -> CurvePicture | None:
    """Return the picture of readings of one unit; None if they have fewer than two sizes."""
    rows = [row for row in results if drawable(row.value) and 0 < (row.bytes or 0) < 2**70]
    sizes = sorted({row.bytes or 0 for row in rows})
    if len(sizes) < 2:
        return None
    x = LogScale(sizes[0], sizes[-1], LEFT + 8, RIGHT - 8)
    y = values_scale(_values(rows), BOTTOM, TOP)
    lines = grouped((line_of(row), row) for row in sorted(rows, key=lambda row: row.bytes or 0))
    many = len(lines) > _MOST_LINES
    bad = sorted((row for row in rows if row.verdict.is_problem), key=quality)
    marked = bad[:_MOST_MARKS] if many else rows
    return CurvePicture(
        title=title,
        unit=rows[0].unit,
        summary=_summary(rows, sizes, len(lines)),
        band=_area(rows, x, y, "low", "high"),
        limit=_path(x, y, _per_size(rows, "shown_limit")),
        range=_area(rows, x, y, "value", "value") if many else "",
        lines=tuple(_middle(rows, x, y) if many else _each(lines.values(), x, y)),
        marks=tuple(
            CurveMark(x.at(row.bytes or 1), y.at(row.value or 1), row.verdict, reading_text(row))
            for row in marked
        ),
        x_ticks=tuple(size_ticks(sizes, x)),
        y_ticks=tuple(value_ticks(y)),
        left_out=len(results) - len(rows),
        worst=worst(row.verdict for row in rows),
    )


def reading_text(row: Result) -> str:
    """Return where, between what, the size, the reading, and the verdict of one row."""
    words = [row.where, row.pair, format_bytes(row.bytes) if row.bytes else ""]
    place = " ".join(word for word in words if word)
    return f"{place}: {number(row.value)} {row.unit}, {row.verdict}"


def _values(rows: Iterable[Result]) -> Iterator[float]:
    for row in rows:
        yield from filter(drawable, (row.value, row.low, row.high, row.shown_limit))


def _per_size(rows: Iterable[Result], name: str) -> dict[int, list[float]]:
    values = ((row.bytes or 0, getattr(row, name)) for row in rows)
    return dict(sorted(grouped(each for each in values if drawable(each[1])).items()))


def _path(x: LogScale, y: LogScale, values: dict[int, list[float]]) -> str:
    return " ".join(f"{x.at(size)},{y.at(max(each))}" for size, each in values.items())


def _area(rows: Sequence[Result], x: LogScale, y: LogScale, low: str, high: str) -> str:
    lowest, highest = _per_size(rows, low), _per_size(rows, high)
    if not lowest or not highest:
        return ""
    there = [f"{x.at(size)},{y.at(max(values))}" for size, values in highest.items()]
    back = [f"{x.at(size)},{y.at(min(values))}" for size, values in reversed(lowest.items())]
    return " ".join([*there, *back])


def _middle(rows: Sequence[Result], x: LogScale, y: LogScale) -> Iterator[str]:
    middle = {size: [statistics.median(each)] for size, each in _per_size(rows, "value").items()}
    yield _path(x, y, middle)


def _each(lines: Iterable[Sequence[Result]], x: LogScale, y: LogScale) -> Iterator[str]:
    for rows in lines:
        yield " ".join(f"{x.at(row.bytes or 1)},{y.at(row.value or 1)}" for row in rows)


def _summary(rows: Sequence[Result], sizes: Sequence[int], lines: int) -> str:
    least = min(rows, key=quality)
    bad = sum(row.verdict.is_problem for row in rows)
    judged = (
        f"{bad} of {len(rows)} readings are not a pass" if bad else "no reading is out of order"
    )
    return (
        f"{len(rows)} readings of {counted(lines, 'line')} from"
        f" {format_bytes(sizes[0])} to {format_bytes(sizes[-1])}; {judged};"
        f" the one furthest below its band or limit is {reading_text(least)}"
    )
