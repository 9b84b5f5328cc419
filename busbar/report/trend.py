# SPDX-License-Identifier: MIT
"""The picture of a series over the nights: readings, band, changes, what else differed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from busbar.report.curve import BOTTOM, LEFT, RIGHT, TOP
from busbar.report.scale import Tick, drawable, number, value_ticks, values_scale
from busbar.words import counted, grouped, names_text

if TYPE_CHECKING:  # numpy takes a while to load, and a run without history does not need it
    from busbar.history.model import Change, Event, NightSeries

_NIGHT = 86400.0
_MOST_POINTS = 400
_MOST_TICKS = 4
_MOST_SIGNS = 12
_FEWEST_NIGHTS = 3
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 20


@dataclass(frozen=True)
class TrendStep:
    """A change of the level."""

    x: float
    until: float | None
    """The end of a drift; None for a step."""
    y_before: float
    y_after: float
    text: str
    worse: bool


@dataclass(frozen=True)
class Sign:
    """A night since which something else differs."""

    x: float
    number: int
    text: str


@dataclass(frozen=True)
class Trend:
    """Geometry and text of the picture; the template draws it."""

    name: str
    metric: str
    unit: str
    summary: str
    line: str
    dots: tuple[tuple[float, float], ...]
    band_top: float | None
    band_height: float
    limit: float | None
    steps: tuple[TrendStep, ...]
    signs: tuple[Sign, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    spark: str
    nights: int
    last: str
    table: tuple[tuple[str, str], ...]
    """Date and value of each night, the last one first."""
    changed: bool
    worse: bool

    @property
    def fills_a_picture(self) -> bool:
        """Whether there are enough nights for more than a line of a table."""
        return self.nights >= _FEWEST_NIGHTS

    @property
    def nights_text(self) -> str:
        """The number of nights in words."""
        return counted(self.nights, "night")


def day(time: float) -> str:
    """Return the date of a time in seconds since 1970; ``unknown`` for one beyond the calendar."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "unknown"


def percent(change: Change) -> str:
    """Return a change as ``-18.2 % (95 %: -19.0 to -17.1 %)``."""
    text = f"{100 * (change.ratio.value - 1):+.1f} %"
    if change.ratio.low is None or change.ratio.high is None:
        return text
    low, high = 100 * (change.ratio.low - 1), 100 * (change.ratio.high - 1)
    return f"{text} (95 %: {low:+.1f} to {high:+.1f} %)"


def dated(change: Change) -> str:
    """Return a change with its time: ``since 2026-05-01: -18.2 %``."""
    if change.until is None or change.weekly is None:
        return f"since {day(change.since)}: {percent(change)}"
    weekly = f"{100 * change.weekly:+.2f} % a week"
    return f"{day(change.since)} to {day(change.until)}: {percent(change)}, {weekly}"


def trend(
    series: NightSeries,
    events: Sequence[Event],
    facts: Mapping[int, Mapping[str, str]],
    since: float | None = None,
) -> Trend | None:
    """Return the picture of one series; None without a night since ``since``.

    ``facts`` has each provenance by its number.
    """
    nights = [
        (float(time), float(value))
        for time, value in zip(series.times, series.values, strict=True)
        if drawable(float(value))
        and math.isfinite(float(time))
        and (since is None or time >= since)
    ][-_MOST_POINTS:]
    if not nights:
        return None
    changes = [change for event in events for change in event.changes if change.key == series.key]
    bounds, key = series.bounds, series.key
    first, last = nights[0][0], max(nights[-1][0], nights[0][0] + _NIGHT)

    def x(time: float) -> float:
        share = (time - first) / (last - first)
        return round(LEFT + 8 + min(max(share, 0.0), 1.0) * (RIGHT - LEFT - 16), 1)

    shown = [bounds.low, bounds.high]
    values = [value for _, value in nights]
    y = values_scale([*values, *(v for v in shown if v is not None)], BOTTOM, TOP)
    banded = drawable(bounds.low) and drawable(bounds.high)
    top = y.at(bounds.high or 1) if banded else None
    near = drawable(bounds.limit) and y.low <= (bounds.limit or 0) <= y.high
    return Trend(
        name=key.name,
        metric=" ".join(part for part in (key.metric, key.node) if part),
        unit=key.unit,
        summary=_summary(nights, changes, key.unit),
        line=" ".join(f"{x(time)},{y.at(value)}" for time, value in nights),
        dots=tuple((x(time), y.at(value)) for time, value in nights),
        band_top=top,
        band_height=round(y.at(bounds.low or 1) - top, 1) if top is not None else 0.0,
        limit=y.at(bounds.limit or 1) if near else None,
        steps=tuple(
            TrendStep(
                x=x(change.since if change.until else (change.last_before + change.since) / 2),
                until=None if change.until is None else x(change.until),
                y_before=y.at(change.before) if drawable(change.before) else BOTTOM,
                y_after=y.at(change.after) if drawable(change.after) else BOTTOM,
                text=dated(change),
                worse=change.worse,
            )
            for change in changes
        ),
        signs=tuple(_signs(series, facts, x, first))[-_MOST_SIGNS:],
        x_ticks=tuple(_days(first, last, x)),
        y_ticks=tuple(value_ticks(y)),
        spark=_spark(values),
        nights=len(nights),
        last=f"{number(values[-1])} {key.unit}",
        table=tuple((day(time), number(value)) for time, value in reversed(nights)),
        changed=bool(changes),
        worse=any(change.worse for change in changes),
    )


def _summary(nights: Sequence[tuple[float, float]], changes: Sequence[Change], unit: str) -> str:
    steps = "; ".join(dated(change) for change in changes)
    return (
        f"{counted(len(nights), 'night')} from {day(nights[0][0])} to"
        f" {day(nights[-1][0])}, the last {number(nights[-1][1])} {unit};"
        f" {steps or 'no change of the level'}"
    )


def _signs(
    series: NightSeries,
    facts: Mapping[int, Mapping[str, str]],
    x: Callable[[float], float],
    first: float,
) -> Iterator[Sign]:
    """Yield a sign for each night from which on the provenance was another one."""
    known, count = 0, 0
    for time, provenance in zip(series.times, series.provenance, strict=True):
        if provenance and known and provenance != known and time >= first:
            before, after = facts.get(known, {}), facts.get(int(provenance), {})
            texts = [
                f"{name} {before[name]} -> {after[name]}"
                for name in sorted(before.keys() & after.keys())
                if before[name] != after[name]
            ]
            if texts:
                count += 1
                yield Sign(x(float(time)), count, f"{day(float(time))}: {names_text(texts)}")
        known = int(provenance) or known


def _days(first: float, last: float, x: Callable[[float], float]) -> Iterator[Tick]:
    days = max(1, round((last - first) / _NIGHT))
    step = max(1, math.ceil(days / _MOST_TICKS))
    for n in range(0, days + 1, step):
        time = first + n * _NIGHT
        yield Tick(x(time), day(time))


def _spark(values: Sequence[float]) -> str:
    """Return the points of a line of the size of a word."""
    kept = values[-60:]
    high = max(kept)
    low = min(*kept, 0.95 * high)
    step = _SPARK_WIDTH / max(1, len(kept) - 1)
    return " ".join(
        f"{n * step:.1f},{2 + (high - value) / (high - low) * (_SPARK_HEIGHT - 4):.1f}"
        for n, value in enumerate(kept)
    )


def by_check(trends: Iterable[tuple[str, Trend]]) -> dict[str, list[Trend]]:
    """Return the pictures by check; those that became worse are first, then those that changed."""
    found = grouped(trends)
    for each in found.values():
        each.sort(key=lambda one: (not one.worse, not one.changed, one.metric))
    return found
