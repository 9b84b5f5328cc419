# SPDX-License-Identifier: MIT
"""The ratio of two groups of readings and its interval, by ranks.

All ratios of a reading of the one to a reading of the other group are sorted. Their median is the
ratio, and the interval ends at those whose rank the Mann-Whitney statistic U leaves out with
2.5 % on each side (J. L. Hodges, E. L. Lehmann, Annals of Mathematical Statistics 34, 1963). It
assumes no distribution. The ratio of both medians is another number, which this interval may
exclude. Fewer than 4 readings on each side have no interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from busbar.document import written
from busbar.history.statistic import Array

_EXACT = 20
"""Up to so many readings of both groups, U is counted; beyond, it is as good as normal."""
_MOST = 400
_NORMAL = 1.959964
_TAIL = 0.025


def rounded(value: float) -> float | None:
    """Return a number as documents have it; they have null for infinity."""
    return round(value, 6)


@dataclass(frozen=True)
class Ratio:
    """A ratio and its 95 % interval."""

    value: float = field(metadata=written("ratio", by=rounded))
    """The median of the ratios of all pairs, of one before and one after; null if before was 0."""
    low: float | None = field(default=None, metadata=written("ratio_low", by=rounded))
    """Lower end of the 95 % interval of ``ratio``; null for fewer than 4 readings of one."""
    high: float | None = field(default=None, metadata=written("ratio_high", by=rounded))
    """Upper end."""

    @property
    def excludes_one(self) -> bool:
        """Whether both groups differ."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def ratio_of(old: Array, new: Array) -> Ratio:
    """Return ``new`` over ``old``."""
    old, new = old[-_MOST:], new[-_MOST:]
    if old.min() <= 0 or new.min() <= 0:
        before = float(np.median(old))
        return Ratio(float(np.median(new)) / before if before else math.inf)
    ratios = np.exp(np.sort((np.log(new)[:, None] - np.log(old)[None, :]).ravel()))
    value = float(np.median(ratios))
    skipped = _left_out(len(old), len(new))
    if skipped is None:
        return Ratio(value)
    return Ratio(value, float(ratios[skipped]), float(ratios[-1 - skipped]))


def _left_out(m: int, n: int) -> int | None:
    """Return how many of the sorted ratios the interval leaves out on each side."""
    if min(m, n) < 4:
        return None
    if max(m, n) > _EXACT:
        deviation = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 - _NORMAL * deviation))
    # In how many orders U has each value; of ``k`` new readings among ``n`` old ones, the largest
    # reading is new and above all old ones, or it is old.
    orders = [np.ones(1)] * (n + 1)
    for k in range(1, m + 1):
        row = [np.ones(1)]
        for above in range(1, n + 1):
            counts = np.zeros(k * above + 1)
            counts[above:] = orders[above]
            counts[: len(row[-1])] += row[-1]
            row.append(counts)
        orders = row
    below = np.cumsum(orders[n]) / orders[n].sum()
    # U < skipped + 1 has at most the tail.
    return int(np.searchsorted(below, _TAIL, side="right")) - 1 if below[0] <= _TAIL else None
