# SPDX-License-Identifier: MIT
"""Pictures of readings with band and limit: curves over sizes, bars for one size."""

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


def curve(title: str, results: Sequence[Result]) -> CurvePicture | None:
    """Return the picture of readings of one unit; None if they have fewer than two sizes."""
    rows = [row for row in results if drawable(row.value) and 0 < (row.bytes or 0) < 2**70]
    sizes = sorted({row.bytes or 0 for row in rows})
    if len(sizes) < 2:
        return None
    x = LogScale(sizes[0], sizes[-1], LEFT + 8, RIGHT - 8)
    y = values_scale(_values(rows), BOTTOM, TOP)
    ordered = sorted(rows, key=lambda row: row.bytes or 0)
    lines = grouped(((row.where, row.pair), row) for row in ordered)
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


_LENGTH = 100
"""Length of a bar, in percent of its picture, which fills its column."""
_MIDDLE = 8
_ROOM = 1.06
_MOST_DOTS = 64


@dataclass(frozen=True)
class BarPicture:
    """Readings of one kind and size on an axis that begins at zero."""

    label: str
    size: str
    measured: str
    """The worst reading with its unit."""
    band: str
    limit: str
    summary: str
    verdict: Verdict
    count: int
    dots: tuple[CurveMark, ...]
    band_start: float | None
    band_length: float
    limit_at: float | None


def bar(label: str, rows: Sequence[Result]) -> BarPicture:
    """Return the bar of readings of one kind, unit and size; without any the bar is empty."""
    readings = sorted((row for row in rows if row.value is not None), key=quality)
    verdict = worst(row.verdict for row in rows)
    first = next((row for row in readings if row.verdict is verdict), rows[0])
    drawn = [row for row in readings if drawable(row.value)]
    lows = [row.low for row in drawn if row.low is not None and row.low >= 0]
    highs = [row.high for row in drawn if drawable(row.high)]
    limits = [row.shown_limit for row in drawn if drawable(row.shown_limit)]
    latency = first.metric == "latency"
    values = [row.value or 0 for row in drawn] + [value or 0 for value in highs]
    top = max(values + ([] if latency else [value or 0 for value in limits]), default=0) * _ROOM
    banded = bool(lows and highs and top)
    start = _at(min(lows), top) if banded else 0.0
    end = _at(max(value or 0 for value in highs), top) if banded else 0.0
    text = f"{number(first.value)} {first.unit}" if first.value is not None else ""
    limit = first.shown_limit
    return BarPicture(
        label=label,
        size=format_bytes(first.bytes) if first.bytes else "",
        measured=text,
        band=f"{first.band_text} {first.unit}" if first.band_text else "",
        limit=f"{number(limit)} {first.unit}" if limit is not None else "",
        summary=_bar_summary(first, len(readings)),
        verdict=verdict,
        count=len(readings),
        # The worst is drawn last, above the others.
        dots=tuple(
            CurveMark(_at(row.value or 0, top), _MIDDLE, row.verdict, reading_text(row))
            for row in reversed(drawn[:_MOST_DOTS])
        ),
        band_start=start if banded else None,
        band_length=round(end - start, 1),
        limit_at=_at(max(v or 0 for v in limits), top) if limits and top else None,
    )


def _at(value: float, top: float) -> float:
    return round(min(value / top, 1.0) * _LENGTH, 1)


def _bar_summary(row: Result, count: int) -> str:
    text = reading_text(row) if row.value is not None else "no reading"
    if row.band_text:
        text += f"; band {row.band_text} {row.unit}"
    if row.shown_limit is not None:
        text += f"; limit {number(row.shown_limit)} {row.unit}"
    return text + (f"; the worst of {count}" if count > 1 else "")
