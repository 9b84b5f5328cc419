# SPDX-License-Identifier: MIT
r"""The statistic of a step in a series of nights, and its threshold.

For the window of the last ``n`` nights, ``n`` in :data:`WINDOWS`, and the baseline of up to 180
nights before it, let ``z`` be the nights of the window less the mean of the baseline, over its
standard deviation, with the sign of the step. Mean and deviation are of the middle of the
baseline: the mean without the outer tenth on each side, and the root mean square of the nearest
nine tenths times 1.267, which is the standard deviation of a normal distribution (J. W. Tukey's
trimmed estimates; P. J. Huber, Robust Statistics, 1981, chapters 3 and 5).

``n`` nights at a new level are all away from the old one; a slow night is far away, with ordinary
nights beside it. Each night is therefore credited with no more than the second weakest night of
the window plus a margin :math:`w`:

.. math:: S_n = \sum_i \min(z_i, z_{(2)} + w) \Big/ \sqrt{n f_n + n^2 f_m / m}

The denominator is the standard deviation of the difference of both means if nights are independent
(:math:`f = 1`) or follow each other with correlation :math:`r`: the variance of a sum of ``n`` is
:math:`n f` with :math:`f = 1 + 2 \sum_k (1 - k/n) r^k` (G. E. P. Box, G. M. Jenkins, Time Series
Analysis, 1970, chapter 2). ``r`` is estimated from the baseline and counts if it is significant.
The week counts in the same way: if the weekdays of the baseline differ significantly, each night
is compared with its weekday.

Baselines that are not normal change the rule:

- With nights beyond 5 deviations, such nights of the window are left out, and the others have to
  show the step; or all of at least 5 nights are 2.2 deviations away: three slow nights of five are
  none.
- With more nights between 3 and 5 deviations than normal noise has, ``z`` is bounded by 3 instead
  of the second weakest night.

A short baseline does not show this by itself: what all series of a site show together then counts
(:class:`Noise`).

``S_n`` is maximised over the windows, both directions and all nights, and baselines are estimates,
so the threshold is not that of a normal distribution. It was chosen on simulated years
(`tests/bench/change_points.py`), for less than one false alarm a year in :data:`SERIES` series,
and grows with ``1 + 6 / m``. More series raise it further (Bonferroni):
:math:`h' = \sqrt{h^2 + 2 \ln(N / 500)}`, by the tail of the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

WINDOWS = (4, 5, 6, 7, 10, 14)
"""Nights at the new level."""
BASELINE = 180
"""Most nights that a window is compared with."""
SHORTEST = 20
"""Fewest nights that a window is compared with."""
SERIES = 500
"""Series that the threshold is for."""
_TRIMMED = 0.1
_NEAREST = 0.9
_NORMAL = 1.267
"""The deviation of a normal distribution over the root mean square of its middle nine tenths."""
_FAR = 5.0
_HEAVY_BOUND = 3.0
_MARGIN = 2.5
_ALL_AWAY, _AWAY = 5, 2.2
_USUAL, _USUAL_FAR = 4.66, 4.9
_FOUR, _FOUR_FAR = 5.1, 5.5
"""For windows of 4 nights, in which 3 slow ones are most of all."""
_HEAVY = 5.4
_CORRELATED = 1.15
"""The correlation is an estimate, too."""
_LONGER = 1.06
"""Longer windows than those that find a step in 5 nights find smaller steps, and have time."""
_ESTIMATED = 6
_SHORT, _VERY_SHORT = 90, 60
"""Nights of a baseline that does not show its noise."""
_FEWEST_SERIES = 10
_COMMON_CORRELATION, _COMMON_MIDDLE, _COMMON_FAR = 0.1, 0.015, 0.003
_LEAST = 2e-3
"""Least deviation over the mean: readings are printed with few digits."""
_TINY = 1e-9
"""Least deviation of a series of zeros."""
_WEEKS = 6
"""Weeks of a baseline that can show a weekly pattern."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scan:
    """The statistic of each night over its threshold; 1 and more is a step."""

    score: Array
    """Signed: negative for a step down."""
    window: NDArray[np.int64]
    """Nights of the window with the largest score."""


@dataclass(frozen=True)
class Noise:
    """What the series of one site have in common, which a short baseline cannot show by itself."""

    known: bool = False
    correlation: float = 0.0
    """Of consecutive nights."""
    heavy: bool = False
    """Whether nights are outside of three deviations more often than normal ones."""
    far: bool = False
    """Whether there are nights far away: slow nights."""


UNKNOWN = Noise()


@dataclass(frozen=True)
class _Baseline:
    """Estimates of the baseline that ends with each night."""

    nights: NDArray[np.int64]
    mean: Array
    deviation: Array
    correlation: Array
    heavy: NDArray[np.bool_]
    far: NDArray[np.bool_]


def scan(
    values: Array, days: NDArray[np.int64], series: int = SERIES, noise: Noise = UNKNOWN
) -> Scan:
    """Return the score of each night of a series.

    ``days`` counts the days of the nights, ``series`` how many series are looked at.
    """
    nights = len(values)
    score, best = np.zeros(nights), np.zeros(nights, dtype=np.int64)
    if nights < SHORTEST + min(WINDOWS):
        return Scan(score, best)
    level = float(np.median(values))
    values = values - level
    padded = np.concatenate([np.full(BASELINE - 1, np.nan), values])
    history = sliding_window_view(padded, BASELINE)
    weekday = np.concatenate([np.arange(BASELINE - 1) - (BASELINE - 1) + days[0], days]) % 7
    weekdays = sliding_window_view(weekday, BASELINE)
    pattern = _weekly(history, weekdays)
    # Each baseline without its own week; a night is then less the pattern of the baseline.
    rows = np.arange(nights)[:, None]
    flat = history - pattern[rows, weekdays]
    base = _baseline(flat, abs(level) * _LEAST, noise)
    raised = 2 * math.log(max(series, SERIES) / SERIES)
    for n in WINDOWS:
        ends = np.arange(SHORTEST + n - 1, nights)
        if not len(ends):
            break
        before = ends - n
        at = ends[:, None] - np.arange(n)[::-1]
        window = values[at] - pattern[before[:, None], days[at] % 7]
        z = (window - base.mean[before, None]) / base.deviation[before, None]
        threshold = np.sqrt(_threshold(base, before, n) ** 2 + raised)
        for sign in (-1.0, 1.0):
            ratio = _score(np.sort(sign * z, axis=1), base, before) / threshold
            better = ratio > np.abs(score[ends])
            score[ends] = np.where(better, sign * ratio, score[ends])
            best[ends] = np.where(better, n, best[ends])
    return Scan(score, best)


def _score(z: Array, base: _Baseline, before: NDArray[np.int64]) -> Array:
    """Return the statistic of windows, whose nights are sorted, the weakest first."""
    n = z.shape[1]
    heavy, far = base.heavy[before], base.far[before]
    out = (z > _FAR) & far[:, None]
    bound = np.where(heavy, _HEAVY_BOUND, np.where(far, np.inf, z[:, 1] + _MARGIN))
    credited = np.where(out & ~heavy[:, None], 0.0, np.minimum(z, bound[:, None]))
    counted = np.where(heavy, n, n - np.count_nonzero(out, axis=1))
    r = base.correlation[before]
    noise = counted * _inflation(r, n) + counted**2 / base.nights[before] * _inflation(r, 30)
    total = np.where(
        counted >= WINDOWS[0], credited.sum(axis=1) / np.sqrt(np.maximum(noise, 1)), 0
    )
    if n < _ALL_AWAY:
        return total
    return np.where(heavy | (r > 0), total, np.maximum(total, z[:, 0] / _AWAY * _USUAL))


def _threshold(base: _Baseline, before: NDArray[np.int64], n: int) -> Array:
    heavy, far = base.heavy[before], base.far[before]
    four, more = (_FOUR, _FOUR_FAR), (_USUAL, _USUAL_FAR)
    usual, with_far = four if n == WINDOWS[0] else more
    threshold = np.where(heavy, _HEAVY, np.where(far, with_far, usual))
    followed = np.where(base.correlation[before] > 0, _CORRELATED, 1.0)
    longer = _LONGER if n > _ALL_AWAY else 1.0
    return threshold * followed * longer * (1 + _ESTIMATED / base.nights[before])


def _baseline(history: Array, least: float, noise: Noise) -> _Baseline:
    """Return the estimates of each row; the nights that it lacks are NaN, and first."""
    width = history.shape[1]
    nights = np.count_nonzero(~np.isnan(history), axis=1)
    place = np.arange(width)
    ordered = np.sort(history, axis=1)
    cut = (_TRIMMED * nights).astype(np.int64)[:, None]
    middle = (place >= cut) & (place < nights[:, None] - cut)
    mean = np.where(middle, ordered, 0.0).sum(axis=1) / np.maximum(middle.sum(axis=1), 1)
    distance = np.sort(np.abs(history - mean[:, None]), axis=1)
    near = place < np.maximum((_NEAREST * nights).astype(np.int64), 1)[:, None]
    square = np.where(near, distance, 0.0) ** 2
    deviation = _NORMAL * np.sqrt(square.sum(axis=1) / near.sum(axis=1))
    deviation = np.maximum(deviation, least + _TINY)
    z = np.nan_to_num((history - mean[:, None]) / deviation[:, None])
    size = np.abs(z)
    short = nights < _SHORT
    far = np.count_nonzero(size > _FAR, axis=1) > 0
    far |= noise.far if noise.known else nights < _VERY_SHORT
    between = np.count_nonzero((size > 3) & (size <= _FAR), axis=1)
    heavy = between > np.where(far, np.where(nights < 100, 0, 1), 0.012 * nights + 1)
    heavy = np.where(short & noise.known, noise.heavy, heavy | noise.heavy)
    clean = ~far & ~heavy
    bounded = np.clip(z, -3.5, 3.5)
    shift = bounded.sum(axis=1) / np.maximum(nights, 1)
    spread = np.sqrt((bounded**2).sum(axis=1) / np.maximum(nights, 1) - shift**2)
    mean = np.where(clean, mean + shift * deviation, mean)
    deviation = np.where(clean, deviation * spread, deviation)
    deviation = np.maximum(deviation, least + _TINY)
    bounded = np.clip(z, -2.5, 2.5)
    power = np.maximum((bounded**2).sum(axis=1), 1e-9)
    lagged = (bounded[:, 1:] * bounded[:, :-1]).sum(axis=1) / power
    significant = lagged > 2 / np.sqrt(np.maximum(nights, 1))
    unbiased = lagged + (1 + 3 * lagged) / np.maximum(nights, 1)
    correlation = np.where(significant, np.clip(unbiased, 0.0, 0.9), 0.0)
    if noise.known:
        correlation = np.where(short, np.maximum(correlation, noise.correlation), correlation)
    return _Baseline(nights, mean, deviation, correlation, heavy, far)


def common_noise(values: Sequence[Array], days: Sequence[NDArray[np.int64]]) -> Noise:
    """Return the noise that series have in common; unknown for few."""
    lagged, middle, far, total = [], 0, 0, 0
    for each, at in zip(values, days, strict=True):
        if len(each) < _VERY_SHORT // 2:
            continue
        recent = each[-BASELINE:] - np.median(each)
        weekdays = at[-BASELINE:] % 7
        recent = recent - _weekly(recent[None, :], weekdays[None, :])[0, weekdays]
        deviation = max(float(np.median(np.abs(recent))) * 1.4826, _TINY)
        size = np.abs(recent) / deviation
        bounded = np.clip(recent / deviation, -2.5, 2.5)
        r = float((bounded[1:] * bounded[:-1]).sum() / max((bounded**2).sum(), 1e-9))
        lagged.append(r + (1 + 3 * r) / len(recent))
        middle += int(np.count_nonzero((size > 3) & (size <= _FAR)))
        far += int(np.count_nonzero(size > _FAR))
        total += len(recent)
    if len(lagged) < _FEWEST_SERIES:
        return UNKNOWN
    r = float(np.median(lagged))
    return Noise(
        known=True,
        correlation=r if r > _COMMON_CORRELATION else 0.0,
        heavy=middle > _COMMON_MIDDLE * total,
        far=far > _COMMON_FAR * total,
    )


def _inflation(correlation: Array, n: int) -> Array:
    """Return the variance of a sum of ``n`` nights over that of independent ones."""
    total = np.ones_like(correlation)
    power = np.ones_like(correlation)
    for k in range(1, n):
        power = power * correlation
        total += 2 * (1 - k / n) * power
    return total


def _weekly(history: Array, weekdays: NDArray[np.int64]) -> Array:
    """Return what each weekday differs from the mean of the week; 0 where that is noise."""
    rows = len(history)
    found = np.zeros((rows, 7))
    known = ~np.isnan(history)
    enough = np.count_nonzero(known, axis=1) >= 7 * _WEEKS
    if not enough.any():
        return found
    some = history[enough]
    nights = np.count_nonzero(known[enough], axis=1)
    ordered = np.sort(some, axis=1)
    row = np.arange(len(some))
    low, high = ordered[row, nights // 20], ordered[row, nights - 1 - nights // 20]
    bounded = np.where(known[enough], np.clip(some, low[:, None], high[:, None]), 0.0)
    mean = bounded.sum(axis=1) / nights
    total = (bounded**2).sum(axis=1) - nights * mean**2
    effects = np.zeros((len(some), 7))
    between = np.zeros(len(some))
    for day in range(7):
        of_day = (weekdays[enough] == day) & known[enough]
        count = of_day.sum(axis=1)
        sums = np.where(of_day, bounded, 0.0).sum(axis=1)
        effects[:, day] = np.where(count > 0, sums / np.maximum(count, 1) - mean, 0.0)
        between += count * effects[:, day] ** 2
    within = np.maximum(total - between, 1e-300)
    freedom = nights - 7
    ratio = (between / 6) / (within / freedom)
    found[enough] = np.where((ratio > _WEEKLY_F)[:, None], effects, 0.0)
    return found


_WEEKLY_F = 6.0
"""F of the weekdays (6 and more than 35 degrees of freedom): one in 10,000 series without a week
has more."""
