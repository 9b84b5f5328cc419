# SPDX-License-Identifier: MIT
"""Robust statistics: the scatter of readings that should be alike, despite outliers."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median

DEVIATION = 1.4826
"""Ratio of standard deviation to median absolute deviation for a normal distribution."""


def quality(value: float | None, usual: float | None, *, latency: bool) -> float:
    """Return a value over the usual one, inverted for a latency: less is worse; 0 if unknown."""
    if not value or not usual:
        return 0.0
    return usual / value if latency else value / usual


def chance_of_so_many(count: int, total: int, share: float) -> float:
    """Return the chance of at least ``count`` hits in ``total`` trials: the binomial tail."""
    return sum(
        math.comb(total, hits) * share**hits * (1 - share) ** (total - hits)
        for hits in range(count, total + 1)
    )


def least_of(values: Collection[float], deviations: float) -> tuple[float, float]:
    """Return the median of readings, and how far below it a reading may scatter.

    Uses logarithms, so that rates and their inverses are judged alike.
    """
    middle = median(values)
    scatter = DEVIATION * median(abs(math.log(middle / value)) for value in values)
    return middle, middle * math.exp(-deviations * scatter)
