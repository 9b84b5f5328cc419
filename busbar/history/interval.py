# SPDX-License-Identifier: MIT
"""The interval of a ratio of two groups of readings, by ranks.

The logarithms of all ratios of a reading of the one to a reading of the other group are sorted;
the interval ends at those whose rank the Mann-Whitney statistic U leaves out with 2.5 % on each
side (J. L. Hodges, E. L. Lehmann, Annals of Mathematical Statistics 34, 1963). It assumes no
distribution. Fewer than 4 readings on each side have no interval.
"""

from __future__ import annotations

import math

import numpy as np

from busbar.history.statistic import Array

_EXACT = 20
"""Up to so many readings of both groups, U is counted; beyond, it is as good as normal."""
_MOST = 400
_NORMAL = 1.959964
_TAIL = 0.025


def ratio_interval(old: Array, new: Array) -> tuple[float, float] | None:
    """Return the 95 % interval of ``new`` over ``old``; None for too few readings."""
    old, new = _positive(old), _positive(new)
    skipped = _left_out(len(old), len(new))
    if skipped is None:
        return None
    ratios = np.sort((np.log(new)[:, None] - np.log(old)[None, :]).ravel())
    return float(np.exp(ratios[skipped])), float(np.exp(ratios[-1 - skipped]))


def _positive(values: Array) -> Array:
    return values[values > 0][-_MOST:]


def _left_out(m: int, n: int) -> int | None:
    """Return how many of the sorted ratios the interval leaves out on each side."""
    if min(m, n) < 4:
        return None
    if max(m, n) > _EXACT:
        deviation = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 - _NORMAL * deviation))
    # Coefficients of the Gaussian binomial: in how many orders U has each value.
    orders = np.ones(1)
    for k in range(1, m + 1):
        orders = np.convolve(orders, _step(n + k))
        orders = _divided(orders, k)
    below = np.cumsum(orders) / orders.sum()
    # U < skipped + 1 has at most the tail.
    return int(np.searchsorted(below, _TAIL, side="right")) - 1 if below[0] <= _TAIL else None


def _step(power: int) -> Array:
    """Return the polynomial ``1 - q**power``."""
    polynomial = np.zeros(power + 1)
    polynomial[0], polynomial[power] = 1.0, -1.0
    return polynomial


def _divided(polynomial: Array, power: int) -> Array:
    """Divide a polynomial by ``1 - q**power``, of which it is a multiple."""
    quotient = polynomial.copy()
    for n in range(power, len(quotient)):
        quotient[n] += quotient[n - power]
    return quotient[: len(quotient) - power]
