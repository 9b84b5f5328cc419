# SPDX-License-Identifier: MIT
"""Model the paths of a fleet: what each pair reaches if its ends and its uplinks are well.

A pair is as fast as the slowest part of its path: the NICs of both ends, or, across leaves, its
share of the uplinks. The terms are estimated together from all pairs:

- **generation**: older nodes may be slower than newer ones. Node scores that form two groups, each
  too large for a fault, are two generations; if most of a leaf is of one, all of it is. Kinds of
  hardware that Slurm knows, and that differ, are generations at once.
- **rate** of each pair of generations inside leaves, and across them: other jobs disturb whole
  rounds, so a round that most of the fleet took part in has its own. The first estimate is the
  upper quartile, which a minority of slow nodes does not lower; then it is the median of the pairs
  whose ends and uplinks are well.
- **share**: what a pair reaches across leaves when all nodes cross at once, at the most. When few
  nodes of both leaves cross, as in a second pass, each pair has as much more of the uplinks.

Where the share is less than the rate of the ends, a reading shows nothing of an end that is less
slow than that: such readings judge uplinks and no nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from busbar.cluster.sweep.localise import (
    FEWEST,
    Bools,
    Floats,
    Ints,
    Pairs,
    best_of,
    links_of,
    scatter_of,
    scores,
    suspicious,
)

# The constants: value, meaning, and how to see what another value costs.
#   fleets  python -m tests.bench.sweep_fleet: recall and false accusations of docs/sweep-method.md
#   paths   python -m tests.bench.sweep_paths: the same on shared uplinks and mixed generations
#   method  part of the method, with the reason above
_LARGE = 30  # fleets: pairs of a round that have a rate of their own
_UPPER = 0.75  # method: quantile of the first estimate
_REPEATS = 3  # fleets: estimates, each without the ends that the one before found slow
_CROWDED = 0.5  # paths: share of a leaf's nodes that must cross at once to fill its uplinks
MINORITY = 0.1  # method: share of slow ends beyond which they may be another kind of node
_APART = 4  # paths: distance of two generations by the scatter of both
_UNSURE = 3  # lab: distance of generations by the tolerance, if nodes have one inner pair each
_ODD = 0.2  # paths: share of a leaf's nodes that may be slower or faster than its generation
_MOST_ODD = 0.05  # paths: the same of the fleet; of more, generations are mixed on leaves


@dataclass(frozen=True)
class Paths:
    """The value that the model predicts for each reading."""

    rates: Floats
    """What it should be, as a logarithm."""
    ends: Floats
    """What its ends would reach without uplinks."""
    crowded: Bools
    """Whether it crossed uplinks that most nodes of a leaf crossed at the same time."""
    generation: Ints
    """By end, the slowest is 0."""

    def shows_ends(self, cut: float) -> Bools:
        """Return the readings that a slow end makes slow: the uplinks have room for more."""
        return self.rates >= self.ends + cut / 2


def model(pairs: Pairs, crossing: Bools, leaf: Ints, kind: Ints, cut: float) -> Paths:
    """Estimate all terms from the readings of one kind."""
    first = np.zeros(len(pairs), bool)  # a second pass repeats slow links
    first[np.unique(links_of(pairs), return_index=True)[1]] = True
    inside = pairs.where(~crossing)
    generation = _of_kinds(inside, kind, cut)
    if generation is None:
        generation = _generations(inside, leaf, cut)
    some = int(generation.max()) + 1
    low = np.minimum(generation[pairs.a], generation[pairs.b])
    high = np.maximum(generation[pairs.a], generation[pairs.b])
    inner = low * some + high
    load = _load(pairs, crossing, leaf)
    kinds = inner + _across(pairs, crossing, first, cut) * some * some
    _, number = np.unique(pairs.round, return_inverse=True)
    full = (np.bincount(number) * 4 >= len(np.union1d(pairs.a, pairs.b)))[number]
    filled = full & (load >= _CROWDED)
    crowded = crossing & (filled | ~np.isin(kinds, kinds[filled]))
    thin = (kinds != inner) & ~crowded
    group = (number + 1) * 2 * some * some + kinds
    large = np.bincount(group[~thin], minlength=int(group.max()) + 1)[group] >= _LARGE
    groups = np.where(full & ~thin & large, group, kinds)
    members = {
        # The small rounds of a second pass have few healthy pairs: all of their kind count.
        group: (kinds == group) & first & ~thin if group < 2 * some * some else groups == group
        for group in np.unique(groups).tolist()
    }
    members = {group: theirs for group, theirs in members.items() if theirs.any()}
    rates = pairs.rate.copy()
    for group, theirs in members.items():
        rates[groups == group] = np.quantile(pairs.rate[theirs], _UPPER)
    ends = rates
    for repeat in range(_REPEATS + 1):
        ends = _of_ends(rates, kinds == inner, generation, low, high)
        for one in np.unique(kinds[thin]).tolist():
            mine = thin & (kinds == one)
            share = np.median(rates[(kinds == one) & ~thin])
            rates[mine] = np.minimum(ends[mine], share - np.log(load[mine]))
        if repeat == _REPEATS:
            break
        residuals = pairs.relative(rates)
        shows = rates >= ends + cut / 2
        slow, *_ = suspicious(residuals.where(shows).once(), cut)
        well = ~slow[pairs.a] & ~slow[pairs.b]
        well &= ~_over_slow_uplinks(residuals, crowded, leaf, cut)
        for group, theirs in members.items():
            if (well & theirs).sum() >= FEWEST:
                rates[groups == group] = np.median(pairs.rate[well & theirs])
    return Paths(rates, ends, crowded, generation)


def _of_ends(rates: Floats, inner: Bools, generation: Ints, low: Ints, high: Ints) -> Floats:
    """Return what the ends of each reading reach: as inner pairs of the slower generation."""
    own = [inner & (low == one) & (high == one) for one in range(int(generation.max()) + 1)]
    of = np.array([np.median(rates[theirs]) if theirs.any() else np.nan for theirs in own])
    found = np.fmin(of[low], of[high])
    return np.where(inner | np.isnan(found), rates, found)


def _load(pairs: Pairs, crossing: Bools, leaf: Ints) -> Floats:
    """Return which share of the nodes of its busier leaf crossed in the round of each reading."""
    ends = np.union1d(pairs.a, pairs.b)
    sizes = np.bincount(leaf[ends] + 1, minlength=int(leaf.max()) + 2)
    _, number = np.unique(pairs.round, return_inverse=True)
    found = np.zeros(len(pairs))
    busy = np.zeros((int(number.max()) + 1) * len(sizes))
    keys = [number * len(sizes) + leaf[ends] + 1 for ends in (pairs.a, pairs.b)]
    for key in keys:
        busy += np.bincount(key[crossing], minlength=len(busy))
    for key, of in zip(keys, (pairs.a, pairs.b), strict=True):
        found = np.maximum(found, busy[key] / sizes[leaf[of] + 1])
    return np.where(crossing, found, 0.0)


def _of_kinds(pairs: Pairs, kind: Ints, cut: float) -> Ints | None:
    """Return the generation of each end by its kind of hardware, the slowest first.

    None if all kinds are equally fast, or too many nodes are slower than their kind. Pairs of one
    kind inside leaves decide. Nodes of an unknown kind count as the slowest.
    """
    same = (kind[pairs.a] >= 0) & (kind[pairs.a] == kind[pairs.b])
    score, _ = scores(pairs.where(same).once())
    known = np.isfinite(score)
    middles = {one: np.median(score[known & (kind == one)]) for one in np.unique(kind[known])}
    found, slow, number, last = np.zeros(len(kind), np.int64), 0, 0, math.inf
    for one, middle in sorted(middles.items(), key=lambda each: float(each[1])):
        number += bool(middle - last > -cut / 2)
        last = middle
        found[kind == one] = number
        slow += int((score[known & (kind == one)] < middle + cut).sum())
    return found if number and slow <= _MOST_ODD * known.sum() else None


def _generations(pairs: Pairs, leaf: Ints, cut: float) -> Ints:
    """Return the generation of each end by its pairs inside leaves, the slowest first."""
    score, readings = scores(pairs.once())
    known = np.isfinite(score)
    # On leaves of two, both ends have the same reading, which hides how far readings scatter.
    nearest = -cut / 2 if (readings > 1).any() else -_UNSURE * cut
    steps = _steps(score[known], nearest, MINORITY * len(np.union1d(pairs.a, pairs.b)))
    generation = np.searchsorted(steps, np.where(known, score, np.inf), side="right")
    found, odd = generation.copy(), 0
    for one in np.unique(leaf[leaf >= 0]).tolist() if len(steps) else ():
        counts = np.bincount(generation[known & (leaf == one)], minlength=len(steps) + 1)
        few = int(counts.sum() - counts.max())
        odd += few
        if few <= _ODD * counts.sum():
            found[leaf == one] = counts.argmax()
    return found if odd <= _MOST_ODD * known.sum() else generation


def _steps(values: Floats, nearest: float, least: float) -> list[float]:
    """Return where the values of one generation end and the values of the next begin.

    The best step leaves the least variance on both sides (Otsu's method). It counts if each side
    is too large for a fault, and if they are further apart than they scatter and ``nearest``.
    """
    if len(values) <= 2 * max(2.0, least):
        return []
    ordered = np.sort(values)
    few = int(least / 2)
    level = np.clip(ordered, ordered[few], ordered[-1 - few])
    below = np.arange(1, len(level))
    sums = np.cumsum(level)
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (len(level) - below)
    at = int(np.argmax((means[1] - means[0]) ** 2 * below * (len(level) - below))) + 1
    low, high = ordered[:at], ordered[at:]
    apart = float(np.median(high) - np.median(low))
    farther = max(nearest, _APART * (scatter_of(low) + scatter_of(high)))
    if min(len(low), len(high)) <= max(2.0, least) or apart < farther:
        return []
    step = float(np.median(high) + np.median(low)) / 2
    return [*_steps(low, nearest, least), step, *_steps(high, nearest, least)]


def _over_slow_uplinks(pairs: Pairs, crossing: Bools, leaf: Ints, cut: float) -> Bools:
    """Return which pairs cross the uplinks of a leaf that is slow across, as a minority is."""
    if not crossing.any():
        return crossing
    ends = np.concatenate([leaf[pairs.a[crossing]], leaf[pairs.b[crossing]]])
    found, counts = best_of(ends, np.tile(pairs.rate[crossing], 2), int(leaf.max()) + 1)
    slow = found < cut
    if slow.sum() * 2 >= np.count_nonzero(counts):
        slow[:] = False
    return crossing & (slow[leaf[pairs.a]] | slow[leaf[pairs.b]])


def _across(pairs: Pairs, crossing: Bools, first: Bools, cut: float) -> Ints:
    """Return 1 for pairs that cross leaves and 0 for others; all 0 if both are equally fast."""
    if crossing.all() or not crossing.any():
        return np.zeros(len(pairs), np.int64)
    inside, across = (
        np.quantile(pairs.rate[which & first], _UPPER) for which in (~crossing, crossing)
    )
    alike = abs(inside - across) < -cut / 2
    return np.zeros(len(pairs), np.int64) if alike else crossing.astype(np.int64)
