# SPDX-License-Identifier: MIT
"""Readings of one size as bars: where they are between zero, band and limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busbar.engine.results import Result
from busbar.report.curve import CurveMark, reading_text
from busbar.report.rows import quality
from busbar.report.scale import drawable, number
from busbar.units import format_bytes
from busbar.verdict import Verdict, worst

_LENGTH = 100
"""Of a bar, in percent of its picture, which is as wide as its column."""
_MIDDLE = 8
_ROOM = 1.06
_MOST_MARKS = 64


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
        summary=_summary(first, len(readings)),
        verdict=verdict,
        count=len(readings),
        # The worst is drawn last, above the others.
        dots=tuple(
            CurveMark(_at(row.value or 0, top), _MIDDLE, row.verdict, reading_text(row))
            for row in reversed(drawn[:_MOST_MARKS])
        ),
        band_start=start if banded else None,
        band_length=round(end - start, 1),
        limit_at=_at(max(v or 0 for v in limits), top) if limits and top else None,
    )


def _at(value: float, top: float) -> float:
    return round(min(value / top, 1.0) * _LENGTH, 1)


def _summary(row: Result, count: int) -> str:
    text = reading_text(row) if row.value is not None else "no reading"
    if row.band_text:
        text += f"; band {row.band_text} {row.unit}"
    if row.shown_limit is not None:
        text += f"; limit {number(row.shown_limit)} {row.unit}"
    return text + (f"; the worst of {count}" if count > 1 else "")
