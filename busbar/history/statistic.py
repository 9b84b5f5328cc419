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
the window plus a margin :math:`w`, 2.5 or, beside slow nights, 2:
:math:`c_i = \min(z_i, z_{(2)} + w)`.

Nights that follow each other with correlation :math:`r` know less than independent ones, and what
they know is in what each adds to the night before it: of two nights ``g`` days apart,
:math:`e_i = (c_i - \rho_i c_{i-1}) / s_i` with :math:`\rho_i = r^g` and :math:`s_i^2 = 1 -
\rho_i^2` is independent noise. A step moves it by :math:`w_i = 1 / s_1` on its first night and by
:math:`(1 - \rho_i) / s_i` on the others. The statistic is the likelihood ratio of a step of
unknown size (generalized least squares; G. E. P. Box, G. M. Jenkins, Time Series Analysis, 1970):

.. math:: S_n = \sum_i w_i e_i \Big/ \sqrt{\sum_i w_i^2 + (\sum_i w_i (1 - \rho_i) / s_i)^2 / m'}

Its second term is the error of the mean of the baseline, which knows as much as :math:`m' = m (1 -
r) / (1 + r)` independent nights. Without correlation, :math:`S_n` is the difference of both means
over its standard deviation. ``r`` is estimated from the baseline and counts if it is significant.
If the weekdays of the baseline differ significantly, each night is compared with its weekday.

Baselines that are not normal change the rule:

- With nights beyond 5 deviations, such nights count neither in the baseline nor in the window, and
  the others have to show the step. They count if even the weakest night of the window is within 4
  deviations of them. All of at least 5 nights 2.2 deviations away are a step, too: three slow
  nights of five are none.
- With more nights beyond 3 deviations than normal noise has, ``c`` is bounded by 3 instead of the
  second weakest night. All of at least 5 nights twice as far away as the farthest night of the
  baseline are a step: under Student's t with 3 degrees of freedom, such 5 nights after 20 have a
  chance below :math:`10^{-9}` (:math:`5!\,20!/25!` by their ranks, times :math:`2^{-3 \cdot 5}`).

A short baseline does not show this by itself: what all series of a site show together then counts
(:class:`Noise`).

``S_n`` is maximised over the windows, both directions and all nights, and baselines are estimates,
so the threshold does not come from a normal distribution. It was chosen on simulated years
(`tests/bench/change_points.py`), for less than one false alarm a year in :data:`SERIES` series,
and grows with ``1 + 6 / m'``. More series raise it further (Bonferroni):
:math:`h' = \sqrt{h^2 + 2 \ln(N / 500)}`, by the tail of the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from busbar.robust import DEVIATION

# The constants: value, meaning, and what determined the value.
#   years   simulated years: python -m tests.bench.simulate_nights DIR
#           && python -m tests.bench.change_points DIR; all of them together, for less than one
#           false alarm a year in SERIES series, then for the shortest delay
#   normal  computed for normal noise
#   method  part of the method, with the sources above
WINDOWS = (4, 5, 6, 7, 10, 14)  # years: nights at the new level
BASELINE = 180  # years: most nights that a window is compared with
SHORTEST = 20  # years: fewest nights that a window is compared with
SERIES = 500  # years: series that the threshold is for
NORMAL = 1.267  # normal: deviation over the root mean square of the middle nine tenths
LEAST = 2e-3  # method: least deviation over the mean, as readings are printed with few digits
_TINY = 1e-9  # method: least deviation of a series of zeros
_TRIMMED = 0.1  # method: share outside of the trimmed mean, on each side
_NEAREST = 0.9  # method: share of the nights that are the middle
_FAR = 5.0  # years: deviations of a slow night
_APART = 4.0  # years: deviations between nights of one level
_HEAVY_BOUND = 3.0  # years: deviations that a night of heavy noise is credited with
_MARGIN = 2.5  # years: what a night is credited with above the second weakest one
_MARGIN_WITH_FAR = 2.0  # years: the same beside slow nights
_ALL_AWAY = 5  # years: nights of a window that are a step if all of them are away
_AWAY = 2.2  # years: deviations of each of them
_BEYOND = 2.0  # method: the same in heavy noise, over the farthest night of the baseline
_USUAL = 4.66  # years: threshold
_FOUR = 5.1  # years: threshold of windows of 4 nights, of which 3 slow ones are a majority
_HEAVY = 5.3  # years: threshold in heavy noise
_LONGER = 1.06  # years: factor for longer windows, which find smaller steps and have time
_ESTIMATED = 6  # years: by how much a threshold grows, over the independent nights of a baseline
_BETWEEN = 3  # years: nights beyond 3 deviations that normal noise has beside slow nights
_BETWEEN_SHORT = 0  # years: the same in fewer than 100 nights
_BETWEEN_SHARE = 0.012  # years: the same without slow nights, as a share to which one is added
_SHORT = 90  # years: nights of a baseline that does not show its noise
_VERY_SHORT = 60  # years: nights of a baseline that does not show slow nights
_FEWEST_SERIES = 10  # years: series that show the noise of a site
_COMMON_CORRELATION = 0.1  # years: least correlation of a site that is one
_COMMON_MIDDLE = 0.015  # years: share of nights between 3 and _FAR deviations of heavy noise
_COMMON_FAR = 0.003  # years: share of slow nights of a site that has some
_WEEKS = 6  # method: weeks of a baseline that can show a weekly pattern
_WEEKLY_F = 6.0  # normal: F of the weekdays (6, over 35): more in 1 of 10,000 without a week

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
    """The common part of a site's series, which one short baseline cannot show."""

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
    farthest: Array
    """Deviations of the night that is the farthest from the mean."""


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
    base = _baseline(flat, abs(level) * LEAST, noise)
    # The pattern follows the noise of its own nights.
    fitted = np.where(pattern.any(axis=1), 6, 0)
    base.deviation[:] *= np.sqrt(base.nights / np.maximum(base.nights - fitted, 1))
    raised = 2 * math.log(max(series, SERIES) / SERIES)
    for n in WINDOWS:
        ends = np.arange(SHORTEST + n - 1, nights)
        before = ends - n
        at = ends[:, None] - np.arange(n + 1)[::-1]
        window = values[at] - pattern[before[:, None], days[at] % 7]
        z = (window - base.mean[before, None]) / base.deviation[before, None]
        threshold = np.sqrt(_threshold(base, before, n) ** 2 + raised)
        for sign in (-1.0, 1.0):
            ratio = _score(sign * z, days[at], base, before) / threshold
            better = ratio > np.abs(score[ends])
            score[ends] = np.where(better, sign * ratio, score[ends])
            best[ends] = np.where(better, n, best[ends])
    return Scan(score, best)


def _score(z: Array, days: NDArray[np.int64], base: _Baseline, before: NDArray[np.int64]) -> Array:
    """Return the statistic of windows; the first column is the night before each of them."""
    n = z.shape[1] - 1
    heavy, far = base.heavy[before], base.far[before]
    weakest = np.sort(z[:, 1:], axis=1)
    margin = np.where(far, _MARGIN_WITH_FAR, _MARGIN)
    bound = np.where(heavy, _HEAVY_BOUND, weakest[:, 1] + margin)
    credited = np.minimum(z, bound[:, None])
    most = np.maximum(_FAR, weakest[:, 0] + (_APART if n >= _ALL_AWAY else -np.inf))
    counts = (z <= most[:, None]) | (heavy | ~far)[:, None]
    r = base.correlation[before]
    last, last_day = np.clip(z[:, 0], -_MARGIN, _MARGIN), days[:, 0]
    total, noise, level = np.zeros(len(z)), np.zeros(len(z)), np.zeros(len(z))
    counted = np.zeros(len(z))
    for night in range(1, n + 1):
        some = counts[:, night]
        kept = r ** (days[:, night] - last_day)
        own = np.sqrt(1 - kept**2)
        weight = np.where(counted > 0, 1 - kept, 1.0) / own
        total += np.where(some, weight * (credited[:, night] - kept * last) / own, 0)
        noise += np.where(some, weight**2, 0)
        level += np.where(some, weight * (1 - kept) / own, 0)
        last = np.where(some, credited[:, night], last)
        last_day = np.where(some, days[:, night], last_day)
        counted += some
    noise += level**2 / _independent(base, before)
    total = np.where(counted >= WINDOWS[0], total / np.sqrt(np.maximum(noise, 0.1)), 0)
    if n < _ALL_AWAY:
        return total
    beyond = weakest[:, 0] / (_BEYOND * base.farthest[before]) * _HEAVY
    away = np.where(r > 0, total, weakest[:, 0] / _AWAY * _USUAL)
    return np.maximum(total, np.where(heavy, beyond, away))


def _threshold(base: _Baseline, before: NDArray[np.int64], n: int) -> Array:
    usual = _FOUR if n == WINDOWS[0] else _USUAL
    threshold = np.where(base.heavy[before], _HEAVY, usual)
    longer = _LONGER if n > _ALL_AWAY else 1.0
    return threshold * longer * (1 + _ESTIMATED / _independent(base, before))


def _independent(base: _Baseline, before: NDArray[np.int64]) -> Array:
    """Return the number of independent nights that equal the baseline: (1-r)/(1+r) for a mean."""
    r = base.correlation[before]
    return base.nights[before] * (1 - r) / (1 + r)


def _baseline(history: Array, least: float, noise: Noise) -> _Baseline:
    """Return the estimates of each row; the nights that it lacks are NaN, and first."""
    nights = np.count_nonzero(~np.isnan(history), axis=1)
    mean, deviation = _middle(history, least)
    z = (history - mean[:, None]) / deviation[:, None]
    outside = np.abs(np.nan_to_num(z)) > _FAR
    far = outside.any(axis=1)
    if far.any():
        # Slow nights would make the others look quieter than they are.
        ordinary = np.where(outside[far], np.nan, history[far])
        mean[far], deviation[far] = _middle(ordinary, least)
        z[far] = (ordinary - mean[far, None]) / deviation[far, None]
    z = np.nan_to_num(z)
    far |= np.full_like(far, noise.far) if noise.known else nights < _VERY_SHORT
    size = np.abs(z)
    short = nights < _SHORT
    between = np.count_nonzero(size > 3, axis=1)
    beside_far = np.where(nights < 100, _BETWEEN_SHORT, _BETWEEN)
    many = between > np.where(far, beside_far, _BETWEEN_SHARE * nights + 1)
    heavy = np.where(short & noise.known, noise.heavy, many | noise.heavy)
    bounded = np.clip(z, -3.5, 3.5)
    shift = bounded.sum(axis=1) / np.maximum(nights, 1)
    spread = np.sqrt(
        (bounded**2).sum(axis=1) / np.maximum(np.count_nonzero(z, axis=1), 1) - shift**2
    )
    mean = np.where(heavy, mean, mean + shift * deviation)
    deviation = np.where(heavy, deviation, deviation * spread)
    deviation = np.maximum(deviation, least + _TINY)
    bounded = np.clip(z, -2.5, 2.5)
    power = np.maximum((bounded**2).sum(axis=1), 1e-9)
    lagged = (bounded[:, 1:] * bounded[:, :-1]).sum(axis=1) / power
    significant = lagged > 2 / np.sqrt(np.maximum(nights, 1))
    unbiased = lagged + (1 + 3 * lagged) / np.maximum(nights, 1)
    correlation = np.where(significant, np.clip(unbiased, 0.0, 0.9), 0.0)
    if noise.known:
        common = np.where(short, noise.correlation, (correlation + noise.correlation) / 2)
        correlation = np.maximum(correlation, common)
    distance = np.nan_to_num(np.abs(history - mean[:, None])).max(axis=1)
    farthest = np.maximum(distance / deviation, _HEAVY_BOUND)
    return _Baseline(nights, mean, deviation, correlation, heavy, far, farthest)


def _middle(history: Array, least: float) -> tuple[Array, Array]:
    """Return the trimmed mean and deviation of each row."""
    nights = np.count_nonzero(~np.isnan(history), axis=1)
    place = np.arange(history.shape[1])
    cut = (_TRIMMED * nights).astype(np.int64)[:, None]
    middle = (place >= cut) & (place < nights[:, None] - cut)
    ordered = np.sort(history, axis=1)
    mean = np.where(middle, ordered, 0.0).sum(axis=1) / np.maximum(middle.sum(axis=1), 1)
    distance = np.sort(np.abs(history - mean[:, None]), axis=1)
    near = place < np.maximum((_NEAREST * nights).astype(np.int64), 1)[:, None]
    square = np.where(near, distance, 0.0) ** 2
    deviation = NORMAL * np.sqrt(square.sum(axis=1) / near.sum(axis=1))
    return mean, np.maximum(deviation, least + _TINY)


def common_noise(values: Sequence[Array], days: Sequence[NDArray[np.int64]]) -> Noise:
    """Return the noise that series have in common; unknown for few."""
    lagged, middle, far, total = [], 0, 0, 0
    for each, at in zip(values, days, strict=True):
        if len(each) < _VERY_SHORT // 2:
            continue
        recent = each[-BASELINE:] - np.median(each)
        weekdays = at[-BASELINE:] % 7
        recent = recent - _weekly(recent[None, :], weekdays[None, :])[0, weekdays]
        deviation = max(float(np.median(np.abs(recent))) * DEVIATION, _TINY)
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


def _weekly(history: Array, weekdays: NDArray[np.int64]) -> Array:
    """Return how far each weekday differs from the mean of the week; 0 if that is noise."""
    found = np.zeros((len(history), 7))
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
