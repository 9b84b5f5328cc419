# SPDX-License-Identifier: MIT
"""How far readings scatter that should be alike, whatever a few of them are."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median

DEVIATION = 1.4826
"""The standard deviation of a normal distribution by its median absolute deviation."""


def chance_of_so_many(count: int, total: int, share: float) -> float:
    """Return the chance of at least ``count`` hits in ``total`` trials: the binomial tail."""
    return sum(
        math.comb(total, hits) * share**hits * (1 - share) ** (total - hits)
        for hits in range(count, total + 1)
    )


def least_of(values: Collection[float], deviations: float) -> tuple[float, float]:
    """Return the median of readings, and how much lower another one may be by their scatter.

    It is that of the logarithms, so that rates and their inverses are judged alike.
    """
    middle = median(values)
    scatter = DEVIATION * median(abs(math.log(middle / value)) for value in values)
    return middle, middle * math.exp(-deviations * scatter)
