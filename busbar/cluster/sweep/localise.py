# SPDX-License-Identifier: MIT
"""Find the slow ends in pairs: a pair is as slow as its slower end.

The score of an end is the rate that all but its best quarter of pairs stay at or below: an end
that is well has a high score even if several of its partners are slow or some of its readings were
disturbed. Ends with a score below the cut are candidates. A candidate that is fast with a partner
outside the candidates is exonerated, until no more are; a slow end never is.

Two candidates that are fast together exonerate each other too, if that reading is further above
their scores than the scatter of readings explains: the nodes of a small leaf are slow with all
others if its uplinks are.

What remains is accused if its pairs with healthy partners show it:

- there are three of them with different partners (`FEWEST`), so that no burst accuses;
- the chance that an end that is well has such a score is below ``ALPHA`` over the number of tests
  (Bonferroni). With ``k`` pairs of which ``j`` are at or below the score, it is the binomial tail
  ``P(X >= j)`` for the share of pairs between healthy ends that are at or below the score. The
  share comes from the readings, so that no shape of the noise is assumed. Beyond the slowest of
  them it is that of Student's t with three degrees of freedom, a heavy tail, or less if there are
  fewer than four readings, and never below ``BURST``. The same with ``j = k`` and the best of the
  readings counts if it is smaller, and both twice;
- without a limit the score is also further below the median of the healthy scores than their
  scatter (median absolute deviation) explains with the same error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from busbar.robust import DEVIATION, chance_of_so_many

# The constants: value, meaning, and how to see what another value costs.
#   fleets  python -m tests.bench.sweep_fleet: recall and false accusations of docs/sweep-method.md
#   method  part of the method, with the reason above
FEWEST = 3  # method: pairs with different partners that an accusation needs
ALPHA = 1e-3  # method: chance of a false accusation in one analysis
BURST = 0.01  # fleets: share of readings that something else may disturb, whatever others show
FREE = 4  # fleets: one in this many readings of an end may be better than its score
_FREE_IN_COMMON = 8  # fleets: the same for ends that are slow together
_MANY = 10  # fleets: healthy readings that show their scatter by the median absolute deviation
_DEGREES = 3  # method: degrees of freedom of noise with a heavy tail
_SUSPECT_DEVIATIONS = 3  # fleets: how far below the healthy scores an end is a suspect
_SUSPECT_SHARE = 0.5  # fleets: the same as a share of the tolerance
_ENOUGH_BESIDE = 30  # paths: first readings of the rounds that repeat links
_ENOUGH = 8  # paths: with this many partners, an end that is not a candidate is not a suspect
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Readings of pairs, as columns; ends have numbers from 0 to ``count - 1``."""

    count: int
    round: Ints
    a: Ints
    b: Ints
    rate: Floats
    """Natural logarithm of GB/s."""

    def where(self, keep: Bools | Ints) -> Pairs:
        """Return the readings that ``keep`` selects."""
        return Pairs(self.count, self.round[keep], self.a[keep], self.b[keep], self.rate[keep])

    def relative(self, rate: Floats | float) -> Pairs:
        """Return the readings relative to a rate."""
        return replace(self, rate=self.rate - rate)

    def once(self) -> Pairs:
        """Return one reading per pair of ends, the (upper) median of its readings.

        A slow link that was measured repeatedly does not count against its ends.
        """
        links = links_of(self)
        order = np.lexsort((self.rate, links))
        _, first, counts = np.unique(links[order], return_index=True, return_counts=True)
        return self.where(order[first + counts // 2])

    def first(self) -> Pairs:
        """Return the first reading of each pair of ends, which no earlier one selected."""
        links = links_of(self)
        order = np.lexsort((self.round, links))
        _, first = np.unique(links[order], return_index=True)
        return self.where(order[first])

    def __len__(self) -> int:
        return len(self.rate)


@dataclass(frozen=True)
class Culprit:
    """An end that its pairs prove slow."""

    end: int
    score: float
    """Of the pairs with healthy partners, relative to the expected rate."""
    pairs: int
    """Number of readings that prove it."""
    chance: float
    """Of the same readings if it were well, over all tests; NaN if all ends are alike."""

    @property
    def common(self) -> bool:
        """Whether it has no healthy partner: all ends of a group are slow."""
        return math.isnan(self.chance)


@dataclass(frozen=True)
class Located:
    """The slow ends, and those that need more readings."""

    culprits: tuple[Culprit, ...]
    suspects: tuple[int, ...]
    candidates: Bools
    """By end, whether its score is below the cut and no healthy partner exonerates it."""
    scores: Floats
    """By end, relative to the median of those that are well; NaN if it has no reading."""


def best_of(ends: Ints, rates: Floats, count: int, free: int = FREE) -> tuple[Floats, Ints]:
    """Return the score of each end, NaN without readings, and the number of its readings.

    One reading of ``free`` may be better than the score; 0 for none.
    """
    rates = rates[np.lexsort((rates, ends))]
    counts = np.bincount(ends, minlength=count)
    some = counts > 0
    found = np.full(count, np.nan)
    found[some] = rates[(np.cumsum(counts) - 1 - (counts // free if free else 0))[some]]
    return found, counts


def scores(
    pairs: Pairs, for_a: Bools | None = None, for_b: Bools | None = None
) -> tuple[Floats, Ints]:
    """Return the score of each end and the number of its readings.

    ``for_a`` and ``for_b`` select the readings that count for either end.
    """
    for_a = np.ones(len(pairs), bool) if for_a is None else for_a
    for_b = for_a if for_b is None else for_b
    ends = np.concatenate([pairs.a[for_a], pairs.b[for_b]])
    return best_of(ends, np.concatenate([pairs.rate[for_a], pairs.rate[for_b]]), pairs.count)


def suspicious(pairs: Pairs, cut: float) -> tuple[Bools, Floats, Ints]:
    """Return the candidates, and the score of each from its pairs with other ends, with counts."""
    whole, _ = scores(pairs)
    candidates = whole < cut
    while True:
        found, counts = scores(pairs, ~candidates[pairs.b], ~candidates[pairs.a])
        remaining = candidates & ~(found >= cut)
        if (remaining == candidates).all():
            return candidates, found, counts
        candidates = remaining


def locate(pairs: Pairs, cut: float, tests: int, *, relative: bool) -> Located:
    """Return the ends that are slower than ``cut``, which is relative to the expected rate.

    With ``relative`` the expected rate comes from the fleet itself. Otherwise it is a limit, and
    ends that are slow together are accused together.
    """
    pairs = pairs.once()
    whole, _ = scores(pairs)
    if relative and np.isfinite(whole).any():
        cut += max(0.0, float(np.nanmedian(whole)))  # a score is above the middle of its readings
    candidates, found, counts = suspicious(pairs, cut)
    candidates = _without_fast_pairs(pairs, whole, candidates, cut, tests)
    found, counts = scores(pairs, ~candidates[pairs.b], ~candidates[pairs.a])
    healthy = ~candidates & np.isfinite(whole)
    middle = float(np.median(whole[healthy])) if healthy.any() else math.nan
    scatter = scatter_of(whole[healthy]) if relative else 0.0
    farthest = cut
    if relative and healthy.any():
        farthest = min(cut, middle - deviations(tests) * scatter)
    null = np.sort(pairs.rate[healthy[pairs.a] & healthy[pairs.b]])
    met = partners(pairs, candidates)
    culprits: list[Culprit] = []
    for end in np.flatnonzero(candidates & (met >= FEWEST) & (found < farthest)).tolist():
        score, count = float(found[end]), int(counts[end])
        theirs = ((pairs.a == end) & ~candidates[pairs.b]) | (
            (pairs.b == end) & ~candidates[pairs.a]
        )
        chance = tests * chance_of(pairs.rate[theirs], null)
        if chance < ALPHA:
            culprits.append(Culprit(end, score, count, chance))
    if not relative:
        culprits += _common(pairs, candidates & (counts == 0), cut)
    accused = {one.end for one in culprits}
    doubtful = candidates.copy()
    if relative and healthy.any():
        few = partners(pairs, np.zeros(pairs.count, bool)) < _ENOUGH
        least = min(_SUSPECT_SHARE * cut, middle - _SUSPECT_DEVIATIONS * scatter)
        doubtful |= few & (whole < least)
    suspects = tuple(end for end in np.flatnonzero(doubtful).tolist() if end not in accused)
    return Located(tuple(culprits), suspects, candidates, whole - middle)


def _without_fast_pairs(
    pairs: Pairs, whole: Floats, candidates: Bools, cut: float, tests: int
) -> Bools:
    """Return the candidates without those that are fast together."""
    both = candidates[pairs.a] & candidates[pairs.b]
    well = ~candidates[pairs.a] & ~candidates[pairs.b]
    slower = np.minimum(whole[pairs.a], whole[pairs.b])
    distance = deviations(tests) * scatter_of(pairs.rate[well])
    fast = both & (pairs.rate >= cut) & (pairs.rate - slower > distance)
    remaining = candidates.copy()
    remaining[np.concatenate([pairs.a[fast], pairs.b[fast]])] = False
    return remaining


def _common(pairs: Pairs, alone: Bools, cut: float) -> list[Culprit]:
    """Return the ends that are slow together: none of them has measured with a healthy one.

    Pairs with a slow end that has do not count: it may be the only reason. If these ends are not
    most of the fleet, chance may have paired a good one with slow ones only.
    """
    if alone.sum() * 2 < len(np.union1d(pairs.a, pairs.b)):
        return []
    group = pairs.where(alone[pairs.a] & alone[pairs.b])
    ends, rates = np.concatenate([group.a, group.b]), np.tile(group.rate, 2)
    found, counts = best_of(ends, rates, pairs.count, _FREE_IN_COMMON)
    met = partners(group, np.zeros(pairs.count, bool))
    return [
        Culprit(end, float(found[end]), int(counts[end]), math.nan)
        for end in np.flatnonzero((met >= FEWEST) & (found < cut)).tolist()
    ]


def partners(pairs: Pairs, without: Bools) -> Ints:
    """Return the number of different partners of each end that are not in ``without``."""
    ends = np.concatenate([pairs.a, pairs.b])
    others = np.concatenate([pairs.b, pairs.a])
    keep = ~without[others]
    different = np.unique(ends[keep] * pairs.count + others[keep])
    return np.bincount(different // pairs.count, minlength=pairs.count)


def scatter_of(values: Floats) -> float:
    """Return the standard deviation of values by their median absolute deviation."""
    return float(DEVIATION * np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def share_below(null: Floats, score: float) -> float:
    """Return the share of healthy readings, which are sorted, at or below a score."""
    below = int(np.searchsorted(null, score, side="right"))
    share = (below + 1) / (len(null) + 1)
    if not below and len(null) > 1:
        scatter = _scatter_of_few(null) if len(null) < _MANY else scatter_of(null)
        distance, degrees = float(np.median(null)) - score, min(len(null) - 1, _DEGREES)
        share = min(share, _t_tail(distance / scatter, degrees) if scatter > 0 else 0.0)
    return max(share, BURST)


def _scatter_of_few(values: Floats) -> float:
    """Return how far the next value may be from these, as a standard deviation.

    The median absolute deviation of few values is often by chance much too small.
    """
    return float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / len(values))


def _t_tail(distance: float, degrees: int) -> float:
    """Return ``P(T < -distance)`` of Student's t with one, two or three degrees of freedom."""
    match degrees:
        case 1:
            return 0.5 - math.atan(distance) / math.pi
        case 2:
            return 0.5 - distance / (2 * math.sqrt(2 + distance * distance))
    x = distance / math.sqrt(3)
    return 0.5 - (math.atan(x) + x / (1 + x * x)) / math.pi


def chance_of(readings: Floats, null: Floats) -> float:
    """Return the probability that a healthy end has readings as slow as these, or slower.

    It is computed for all readings and for all but the best quarter; twice the smaller one counts.
    """
    ordered = np.sort(readings)
    count = len(ordered)
    chances = [
        chance_of_so_many(least, count, share)
        for least in {count, count - count // FREE}
        for share in [share_below(null, float(ordered[least - 1]))]
    ]
    return min(chances) * len(chances)


def deviations(tests: int) -> float:
    """Return the number of standard deviations that ``ALPHA`` allows in one of these tests."""
    return NormalDist().inv_cdf(1 - ALPHA / tests)


def links_of(pairs: Pairs) -> Ints:
    """Return a number for each pair of ends, ``a * count + b`` with ``a < b``."""
    return np.minimum(pairs.a, pairs.b) * pairs.count + np.maximum(pairs.a, pairs.b)


def repeated(pairs: Pairs, cut: float, healthy: Bools, leaf: Ints | None = None) -> list[Culprit]:
    """Return the pairs of two healthy ends that were slow again; ``end`` is ``a * count + b``.

    The first reading of a pair may be the reason for the others, and proves nothing. For the same
    reason the readings of a healthy fleet are the first ones: a pair is measured again because it
    was slow, and any other choice would hide how often that happens. They are those from the same
    rounds, if there are enough: what few pairs reach differs from what all reach at once. If
    ``leaf`` is known, pairs that cross leaves are compared with such pairs, which collide.
    """
    leaf = np.zeros(pairs.count, np.int64) if leaf is None else leaf
    key = np.where(healthy[pairs.a] & healthy[pairs.b], links_of(pairs), -1)
    order = np.lexsort((pairs.round, key))
    values, first, counts = np.unique(key[order], return_index=True, return_counts=True)
    parts = [
        order[start + 1 : start + count]
        for start, count, one in zip(first, counts, values, strict=True)
        if one >= 0 and count > FEWEST
    ]
    others = pairs.where(healthy[pairs.a] & healthy[pairs.b]).first()
    others = others.where(np.argsort(others.rate))
    beside = others.round >= min((pairs.round[later].min() for later in parts), default=0)
    across = leaf[others.a] != leaf[others.b]
    culprits: list[Culprit] = []
    for later in parts:
        one = int(key[later[0]])
        a, b = divmod(one, pairs.count)
        rates = pairs.rate[later]
        score = best_of(np.zeros(len(later), np.int64), rates, 1, _FREE_IN_COMMON)[0][0]
        alike = (across == (leaf[a] != leaf[b])) & (links_of(others) != one)
        alike &= beside | ((alike & beside).sum() < _ENOUGH_BESIDE)
        if score < cut:
            chance = len(parts) * chance_of(rates, others.rate[alike])
            culprits.append(Culprit(one, float(score), len(later), chance))
    return culprits
