# SPDX-License-Identifier: MIT
"""The steps of one series, as its nights come: each night knows only those before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busbar.history.interval import ratio_of
from busbar.history.model import Change, NightSeries
from busbar.history.statistic import BASELINE, SERIES, UNKNOWN, Array, Noise, scan
from busbar.robust import DEVIATION

_RETURN = 5
"""Nights at the former level that make a return to it."""
_AROUND = 3
"""Nights before the window in which the step may have been."""
_MOST = 200
"""Steps of one series."""


_Scored = Callable[[Array, NDArray[np.int64]], Array]


@dataclass(frozen=True)
class _Step:
    start: int
    """The first night at the new level."""
    found: int
    score: float
    old: NDArray[np.int64]
    """The nights at the old level."""


def changes_of(series: NightSeries, count: int = SERIES, noise: Noise = UNKNOWN) -> list[Change]:
    """Return the changes of a series, the oldest first; ``count`` is how many series there are."""
    steps = _steps(series.values, series.days, lambda v, d: scan(v, d, count, noise).score)
    ends = [*(step.start for step in steps), len(series.values)][1:]
    return [_change(series, step, end) for step, end in zip(steps, ends, strict=True)]


def _steps(values: Array, days: NDArray[np.int64], scored: _Scored) -> list[_Step]:
    found: list[_Step] = []
    level = np.arange(len(values))
    first = 0
    while len(found) < _MOST:
        scores = scored(values[level], days[level])
        alarms = np.flatnonzero(np.abs(scores) >= 1)
        alarms = alarms[alarms >= first]
        if not len(alarms):
            break
        at = int(alarms[0])
        start = _start(values[level], at, first)
        found.append(_Step(int(level[start]), int(level[at]), float(scores[at]), level[:start]))
        old, new = level[:start], level[start:]
        back = _return(values, old, new, at - start)
        if back is not None and back + _RETURN <= _next(scored(values[new], days[new])):
            night = int(new[back])
            found.append(_Step(night, int(new[back + _RETURN - 1]), 1.0, new[:back]))
            level = np.concatenate([old, new[back:]])
            first = len(old) + _RETURN
        else:
            level, first = new, 0
    return found


def _next(scores: Array) -> int:
    """Return after how many nights of a new level the next alarm comes."""
    alarms = np.flatnonzero(np.abs(scores) >= 1)
    return int(alarms[0]) + 1 if len(alarms) else len(scores)


def _start(values: Array, at: int, earliest: int) -> int:
    """Return the night that best divides the old level from the new one, before an alarm.

    The sum of the absolute distances from both medians is least there.
    """
    low = max(earliest, at - 14 - _AROUND, 1)
    before = np.median(values[max(0, low - BASELINE) : low])
    after = np.median(values[at - _AROUND : at + 1])
    to_old = np.abs(values[low : at + 1] - before)
    to_new = np.abs(values[low : at + 1] - after)
    costs = np.concatenate([[0.0], np.cumsum(to_old)])[:-1] + np.cumsum(to_new[::-1])[::-1]
    return min(low + int(costs.argmin()), at - 1)


def _return(
    values: Array, old: NDArray[np.int64], new: NDArray[np.int64], after: int
) -> int | None:
    """Return the first of the nights at the former level again, as a place in ``new``."""
    before = float(np.median(values[old[-BASELINE:]]))
    now = float(np.median(values[new[: after + 1]]))
    spread = float(np.median(np.abs(values[old[-BASELINE:]] - before))) * DEVIATION
    back = np.abs(values[new] - before) < np.abs(values[new] - now)
    back &= np.abs(values[new] - before) < max(4 * spread, abs(now - before) / 2)
    back[: after + 1] = False
    runs = np.convolve(back, np.ones(_RETURN), "valid") if len(back) >= _RETURN else np.empty(0)
    whole = np.flatnonzero(runs == _RETURN)
    return int(whole[0]) if len(whole) else None


def _change(series: NightSeries, step: _Step, end: int) -> Change:
    old = series.values[step.old[-BASELINE:]]
    new = series.values[step.start : max(end, step.start + 1)]
    before, after = float(np.median(old)), float(np.median(new))
    return Change(
        key=series.key,
        since=float(series.times[step.start]),
        last_before=float(series.times[max(step.start - 1, 0)]),
        found=float(series.times[step.found]),
        before=before,
        after=after,
        ratio=ratio_of(old, new),
        score=abs(step.score),
        worse=(after > before) == series.key.less_is_better,
        bounds=series.bounds,
    )
