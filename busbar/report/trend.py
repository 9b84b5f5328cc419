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
_MOST_ROWS = 400
_DETAIL, _BEFORE = 90, 30
"""Nights of a picture, and the number of them before the change that it shows."""
_STRIP_TOP, _STRIP_BOTTOM, _STRIP_PARTS = 222, 252, 140
_MOST_TICKS = 4
_MOST_SIGNS = 12
_FEWEST_NIGHTS = 3


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
class Overview:
    """All nights in a strip, from least to most."""

    area: str
    start: float
    """Where the nights of the picture begin."""
    width: float
    marks: tuple[tuple[float, str, bool], ...]
    """Where a change is, its text, and whether it is for the worse."""
    since: str


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
    nights: int
    last: str
    table: tuple[tuple[str, str], ...]
    """Date and value of the last nights, the last one first."""
    overview: Overview
    changed: bool
    worse: bool

    @property
    def in_part(self) -> bool:
        """Whether the picture has some of the nights only."""
        return self.nights > len(self.dots)

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
    except (ValueError, OverflowError, OSError):  # an imported time beyond the calendar
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
    every = [
        (float(time), float(value))
        for time, value in zip(series.times, series.values, strict=True)
        if drawable(float(value))
        and math.isfinite(float(time))
        and (since is None or time >= since)
    ]
    if not every:
        return None
    changes = [change for event in events for change in event.changes if change.key == series.key]
    nights = _in_detail(every, changes)
    bounds, key = series.bounds, series.key
    first, last, x = _time_scale(nights)
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
        summary=_summary(every, changes, key.unit),
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
            if first <= change.since and (change.until or change.since) <= last
        ),
        signs=tuple(_signs(series, facts, x, (first, last)))[-_MOST_SIGNS:],
        x_ticks=tuple(_days(first, last, x)),
        y_ticks=tuple(value_ticks(y)),
        nights=len(every),
        last=f"{number(every[-1][1])} {key.unit}",
        table=tuple((day(time), number(value)) for time, value in every[: -_MOST_ROWS - 1 : -1]),
        overview=_overview(every, first, last, changes),
        changed=bool(changes),
        worse=any(change.worse for change in changes),
    )


def _in_detail(
    nights: Sequence[tuple[float, float]], changes: Sequence[Change]
) -> Sequence[tuple[float, float]]:
    """Return the nights around the last change, those for the worse first, else the last ones."""
    if len(nights) <= _DETAIL:
        return nights
    start, until = len(nights) - _DETAIL, 0.0
    if changes:
        last = max(changes, key=lambda each: (each.worse, each.since))
        start = min(start, max(0, sum(time < last.since for time, _ in nights) - _BEFORE))
        until = last.until or until
    return nights[start : max(start + _DETAIL, sum(time <= until for time, _ in nights))]


def _time_scale(
    nights: Sequence[tuple[float, float]],
) -> tuple[float, float, Callable[[float], float]]:
    """Return the first and the last time of a picture, and where a time is."""
    first, last = nights[0][0], max(nights[-1][0], nights[0][0] + _NIGHT)

    def x(time: float) -> float:
        share = (time - first) / (last - first)
        return round(LEFT + 8 + min(max(share, 0.0), 1.0) * (RIGHT - LEFT - 16), 1)

    return first, last, x


def _overview(
    nights: Sequence[tuple[float, float]], first: float, last: float, changes: Sequence[Change]
) -> Overview:
    *_, x = _time_scale(nights)
    y = values_scale([value for _, value in nights], _STRIP_BOTTOM, _STRIP_TOP)
    step = math.ceil(len(nights) / _STRIP_PARTS)
    parts = [nights[n : n + step] for n in range(0, len(nights), step)]
    most = [f"{x(part[0][0])},{y.at(max(v for _, v in part)) - 0.7:.1f}" for part in parts]
    least = [f"{x(part[0][0])},{y.at(min(v for _, v in part)) + 0.7:.1f}" for part in parts]
    return Overview(
        area=" ".join([*most, *reversed(least)]),
        start=x(first),
        width=round(x(last) - x(first), 1),
        marks=tuple((x(each.since), dated(each), each.worse) for each in changes),
        since=day(nights[0][0]),
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
    shown: tuple[float, float],
) -> Iterator[Sign]:
    """Yield a sign for each night from which on the provenance was another one."""
    known, count = 0, 0
    for time, provenance in zip(series.times, series.provenance, strict=True):
        if provenance and known and provenance != known and shown[0] <= time <= shown[1]:
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


def by_check(trends: Iterable[tuple[str, Trend]]) -> dict[str, list[Trend]]:
    """Return the pictures by check; those that became worse are first, then those that changed."""
    found = grouped(trends)
    for each in found.values():
        each.sort(key=lambda one: (not one.worse, not one.changed, one.metric))
    return found
