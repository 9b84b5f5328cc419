# SPDX-License-Identifier: MIT
"""Is one delivery as fast as another? A statement about the median of interleaved repetitions.

Each repetition runs both deliveries one after the other, so that what changes with time meets
both; its ratio (image over bare) is one observation. The interval of the median ratio is that of
the sign test, which assumes nothing about how readings scatter: of n ratios the k-th smallest lies
above the true median with probability P(Binomial(n, 1/2) < k).

- ``degraded``: the whole interval lies below LEAST. One of many pairs below it by chance is not to
  fail a run, so the error of 5 % is shared among all pairs and sizes (Bonferroni).
- ``pass``: its lower end is LEAST or more. All pairs must pass, so each may err by 5 %.
- ``unknown``: the readings scatter too much for either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import comb
from statistics import median

from busbar.verdict import Verdict

LEAST = 0.98
"""An image that reaches this share of the other delivery is as fast."""
_ERROR = 0.05


@dataclass(frozen=True)
class Parity:
    """The comparison of one pair at one size."""

    verdict: Verdict
    ratio: float
    """Median over the repetitions of image over bare."""
    low: float
    high: float
    """The interval of that median, as its two statements need it."""
    image: float
    bare: float
    """Medians, GB/s."""
    spread: float
    """Of the ratio: half of what lies between its quartiles."""


def compare(image: Sequence[float], bare: Sequence[float], statements: int) -> Parity:
    """Judges readings that belong together by their place; ``statements`` are made in all."""
    ratios = sorted(one / other for one, other in zip(image, bare, strict=True))
    count = len(ratios)
    below = _rank(count, _ERROR)
    above = _rank(count, _ERROR / statements)
    low = ratios[below - 1] if below else 0.0
    high = ratios[count - above] if above else float("inf")
    verdict = Verdict.UNKNOWN
    if high < LEAST:
        verdict = Verdict.DEGRADED
    elif low >= LEAST:
        verdict = Verdict.PASS
    quarter = count // 4
    return Parity(
        verdict=verdict,
        ratio=median(ratios),
        low=low,
        high=high,
        image=median(image),
        bare=median(bare),
        spread=(ratios[count - 1 - quarter] - ratios[quarter]) / 2,
    )


def enough(statements: int) -> int:
    """Repetitions of which so many statements can each end in ``degraded``: at least 9."""
    count = 9
    while statements and not _rank(count, _ERROR / statements):
        count += 1
    return count


def _rank(count: int, error: float) -> int:
    """The largest k whose k-th smallest of ``count`` lies above the median with at most ``error``;
    0 where there is none."""
    chances = accumulate(comb(count, k) / 2**count for k in range(count))
    return sum(chance <= error for chance in chances)
