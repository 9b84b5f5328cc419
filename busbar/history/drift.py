# SPDX-License-Identifier: MIT
r"""Slow drifts of a series, which no step shows: the past of the series drifts with it.

Once a week, a line is laid through the last :data:`WINDOWS` weeks. Its slope is the median of the
slopes between all pairs of weeks (H. Theil, 1950; P. K. Sen, 1968), and a week is the median of
its nights: neither slow nights nor the days of the week bend it. A slope that all nodes have in
the same weeks comes from the season, a cable hall or the benchmark. What counts is the
difference to the median slope of the series that differ only in the node, if there are
:data:`FELLOWS` and more.

It is compared with its standard error, from the nights about the line. Nights that follow each
other with correlation :math:`r` know as much as :math:`(1 - r) / (1 + r)` of them, and the median
of a week of independent nights knows :math:`2 / \pi` of what their mean does:

.. math:: s^2 = \frac{\sigma^2}{\sum_i (t_i - \bar t)^2} \frac{1 + r}{1 - r}
    \left(1 + \left(\tfrac{\pi}{2} - 1\right) (1 - r)\right)

:math:`\sigma` is the deviation of the middle of the nights, as in
:mod:`busbar.history.statistic`. The rank correlation that is usual beside this slope (H. B. Mann,
1945; M. G. Kendall, 1975) is largest when all weeks are in order, and then cannot tell a clear
drift from noise in which nights follow each other. :data:`_THRESHOLD` was chosen on simulated
years (`tests/bench/drifts.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from busbar.history.model import Change, NightSeries, ratio_of
from busbar.history.statistic import LEAST, NORMAL, SERIES, UNKNOWN, Array, Noise
from busbar.words import grouped

# The constants: value, meaning, and what determined the value.
#   years   simulated years: python -m tests.bench.simulate_nights DIR
#           && python -m tests.bench.drifts DIR; for fewer false alarms than steps have
#   method  part of the method, with the sources above
WINDOWS = (12, 26)  # years: weeks that a line is laid through
FELLOWS = 5  # years: series of all nodes, its own included, for the median slope
_WEEK = 7  # method: nights
_FEWEST_NIGHTS = 3  # years: nights of a week that has a median
_KNOWN = 0.7  # years: share of the weeks that must have one
_NEAREST = 0.9  # method: share of the nights that are the middle
_BOUND = 2.5  # method: deviations that bound a night where correlations are estimated
_UPPER = 1.64  # method: deviations added to the correlation of a series without others beside it
_MOST_CORRELATION = 0.95  # method: of nights; more would make the error infinite
_THRESHOLD = 5.8  # years: slope over its error
_ENDS = 2  # method: weeks at both ends of a drift that its readings before and after are of
_LEAST_LOSS = 0.02  # years: least share that a series moves in the weeks of a line


@dataclass(frozen=True)
class _Line:
    """The line through the weeks that end with some week."""

    weeks: int
    share: float
    """Share of the level that the series moves in a week, beyond the others."""
    slope: float
    """Share of the level that the series itself moves in a night."""
    score: float
    """Over the threshold; 1 and more is a drift. Negative for a drift down."""


def drifts_of(
    fellows: Sequence[NightSeries],
    steps: Sequence[Change],
    count: int = SERIES,
    noise: Noise = UNKNOWN,
) -> list[Change]:
    """Return the drifts of series that differ only in their node.

    ``steps`` are the steps of these series; nights that they explain better do not drift.
    ``count`` is the number of all series.
    """
    first = min(int(each.days[0]) for each in fellows) // _WEEK
    last = max(int(each.days[-1]) for each in fellows) // _WEEK
    grids = [_grid(each, first, last - first + 1) for each in fellows]
    moved = np.zeros((len(fellows), last - first + 1), dtype=np.bool_)
    since = grouped((step.key, step.since) for step in steps)
    for row, series in zip(moved, fellows, strict=True):
        nights = np.searchsorted(series.times, since.get(series.key, []))
        row[series.days[nights] // _WEEK - first] = True
    best: list[dict[int, _Line]] = [{} for _ in fellows]
    threshold = math.sqrt(_THRESHOLD**2 + 2 * math.log(max(count, SERIES) / SERIES))
    for span in WINDOWS:
        if len(grids[0]) < span:
            break
        pairs = [_slopes(grid, span, noise) for grid in grids]
        slopes, errors = (np.array(each) for each in zip(*pairs, strict=True))
        stepped = np.count_nonzero(sliding_window_view(moved, span, axis=1), axis=2) > 0
        own = slopes - _common(slopes, stepped)
        for lines, slope, shares, error in zip(best, slopes, own, errors, strict=True):
            for at in np.flatnonzero(np.abs(shares) >= threshold * error):
                share, score = float(shares[at]), float(shares[at] / error[at]) / threshold
                line = _Line(span, share * _WEEK, float(slope[at]), score)
                end = int(at) + span - 1
                known = abs(lines[end].score) if end in lines else 0.0
                if abs(line.share) * span >= _LEAST_LOSS and abs(score) > known:
                    lines[end] = line
    found = []
    for series, lines in zip(fellows, best, strict=True):
        mine = since.get(series.key, [])
        kept = {end: line for end, line in lines.items() if _fits(series, first, end, line, mine)}
        found += [_change(series, first, episode) for episode in _episodes(kept)]
    return found


def _grid(series: NightSeries, first: int, weeks: int) -> Array:
    """Return the nights of each week as shares of the level; NaN for those that are missing.

    A week whose last night has not come is left out.
    """
    grid = np.full(weeks * _WEEK, np.nan)
    level = abs(float(np.median(series.values)))
    grid[series.days - first * _WEEK] = series.values / (level or 1.0)
    whole = (int(series.days[-1]) + 1) // _WEEK - first
    grid[whole * _WEEK :] = np.nan
    return grid.reshape(weeks, _WEEK)


def _slopes(grid: Array, span: int, noise: Noise) -> tuple[Array, Array]:
    """Return the slope in a night and its error, of each ``span`` weeks; NaN without a line."""
    nights = np.count_nonzero(~np.isnan(grid), axis=1)
    weeks = sliding_window_view(np.where(nights >= _FEWEST_NIGHTS, _median(grid), np.nan), span)
    early, late = np.triu_indices(span, 1)
    slope = _median((weeks[:, late] - weeks[:, early]) / (late - early)) / _WEEK
    day = np.arange(span * _WEEK) - (span * _WEEK - 1) / 2
    values = sliding_window_view(grid.ravel(), span * _WEEK)[::_WEEK]
    about = values - slope[:, None] * day
    about = about - _median(about)[:, None]
    known = ~np.isnan(about)
    count = np.maximum(known.sum(axis=1), 1)
    deviation = np.maximum(_deviation(about), LEAST)
    r = _correlation(about / deviation[:, None], count, noise)
    apart = (np.where(known, day, 0.0) ** 2).sum(axis=1)
    error = deviation / np.sqrt(np.maximum(apart, 1.0))
    error *= np.sqrt((1 + r) / (1 - r) * (1 + (math.pi / 2 - 1) * (1 - r)))
    few = np.count_nonzero(~np.isnan(weeks), axis=1) < _KNOWN * span
    few |= np.isnan(weeks[:, -1])
    return np.where(few, np.nan, slope), error


def _common(slopes: Array, moved: NDArray[np.bool_]) -> Array:
    """Return the slope that the fellows have in common; 0 if there are too few of them.

    Fellows with a step, as by an update of some nodes, count only where hardly any has none.
    """
    steady = np.where(moved, np.nan, slopes)
    counts = [np.count_nonzero(~np.isnan(each), axis=0) for each in (steady, slopes)]
    slope = np.where(counts[0] >= FELLOWS, _median(steady.T), _median(slopes.T))
    return np.where(counts[1] >= FELLOWS, slope, 0.0)


def _correlation(z: Array, count: NDArray[np.int64], noise: Noise) -> Array:
    """Return the correlation of consecutive nights; the site's correlation is known better."""
    bounded = np.nan_to_num(np.clip(z, -_BOUND, _BOUND))
    power = np.maximum((bounded**2).sum(axis=1), 1e-9)
    lagged = (bounded[:, 1:] * bounded[:, :-1]).sum(axis=1) / power
    significant = lagged > 2 / np.sqrt(count)
    # A line takes with it some of the correlation.
    own = lagged + (1 + 4 * lagged) / count
    if noise.known:
        r = np.maximum(np.where(significant, (own + noise.correlation) / 2, 0), noise.correlation)
    else:
        upper = own + _UPPER * np.sqrt(np.maximum(1 - own**2, 0.0) / count)
        r = np.where(significant, upper, 0.0)
    return np.clip(r, 0.0, _MOST_CORRELATION)


def _deviation(about: Array) -> Array:
    """Return the deviation of the middle of each row."""
    distance = np.sort(np.abs(about), axis=1)
    known = np.count_nonzero(~np.isnan(about), axis=1)
    near = np.arange(about.shape[1]) < np.maximum((_NEAREST * known).astype(int), 1)[:, None]
    square = np.where(near, np.nan_to_num(distance), 0.0) ** 2
    deviation: Array = NORMAL * np.sqrt(square.sum(axis=1) / near.sum(axis=1))
    return deviation


def _median(rows: Array) -> Array:
    """Return the median of each row without its NaN; NaN for a row that has nothing else."""
    ordered = np.sort(rows, axis=1)
    known = np.maximum(np.count_nonzero(~np.isnan(rows), axis=1), 1)
    row = np.arange(len(rows))
    middle: Array = ordered[row, (known - 1) // 2] / 2 + ordered[row, known // 2] / 2
    return middle


def _fits(series: NightSeries, first: int, end: int, line: _Line, steps: Sequence[float]) -> bool:
    """Return whether a line is nearer to its nights than the levels between their steps."""
    week = series.days // _WEEK - first
    inside = (week > end - line.weeks) & (week <= end)
    times, values = series.times[inside], series.values[inside]
    since = sorted(time for time in steps if times[0] < time <= times[-1])
    if not since:
        return True
    levels = np.split(values, np.searchsorted(times, since))
    distance = sum(float(np.abs(level - np.median(level)).sum()) for level in levels)
    level = abs(float(np.median(series.values)))
    about = values - line.slope * level * series.days[inside]
    return bool(np.abs(about - np.median(about)).sum() < distance)


def _episodes(lines: Mapping[int, _Line]) -> Iterator[list[tuple[int, _Line]]]:
    """Yield the lines of weeks that follow each other and drift in one direction."""
    episode: list[tuple[int, _Line]] = []
    for end, line in sorted(lines.items()):
        follows = episode and end == episode[-1][0] + 1 and line.score * episode[-1][1].score > 0
        if episode and not follows:
            yield episode
            episode = []
        episode.append((end, line))
    if episode:
        yield episode


def _change(series: NightSeries, first: int, episode: Sequence[tuple[int, _Line]]) -> Change:
    (begin, line), (end, _) = episode[0], episode[-1]
    week = series.days // _WEEK - first
    start = begin - line.weeks + 1
    old = series.values[(week >= start) & (week < start + _ENDS)]
    new = series.values[(week > end - _ENDS) & (week <= end)]
    before, after = float(np.median(old)), float(np.median(new))
    share = float(np.median([each.share for _, each in episode]))
    at = int(np.searchsorted(week, start))
    return Change(
        key=series.key,
        since=float(series.times[at]),
        last_before=float(series.times[max(at - 1, 0)]),
        found=float(series.times[np.searchsorted(week, begin, side="right") - 1]),
        before=before,
        after=after,
        ratio=ratio_of(old, new),
        score=max(abs(each.score) for _, each in episode),
        worse=(share > 0) == series.key.less_is_better,
        bounds=series.bounds,
        until=float(series.times[np.searchsorted(week, end, side="right") - 1]),
        weekly=share,
    )
