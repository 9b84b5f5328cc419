# SPDX-License-Identifier: MIT
"""The rate of healthy pairs, by which a fleet judges itself where no limit is known.

Pairs that cross leaves may share uplinks, and so may be slower than others. Each kind has its own
rate, and in a round that most of the fleet took part in each round has: other jobs disturb whole
rounds. The first estimate is the upper quartile, which a minority of slow nodes does not lower;
then it is the median of the pairs whose ends and uplinks are well. Of four leaves, half of the
pairs cross the uplinks of one.
"""

from __future__ import annotations

import numpy as np

from busbar.cluster.sweep.localise import (
    FEWEST,
    Bools,
    Floats,
    Ints,
    Pairs,
    best_of,
    links_of,
    suspicious,
)

# The constants: value, meaning, and how to see what another value costs.
#   fleets  python -m tests.bench.sweep_fleet: recall and false accusations of docs/sweep.md
#   method  part of the method, with the reason above
_LARGE = 30  # fleets: pairs of a round that have a rate of their own
_UPPER = 0.75  # method: quantile of the first estimate
_REPEATS = 3  # fleets: estimates, each without the ends that the one before found slow
_KINDS = 2  # method: pairs inside a leaf, and across leaves


def healthy_rates(pairs: Pairs, crossing: Bools, leaf: Ints, cut: float) -> Floats:
    """Return for each reading the rate that its pair should have, as a logarithm."""
    first = np.zeros(len(pairs), bool)  # a second pass repeats slow links
    first[np.unique(links_of(pairs), return_index=True)[1]] = True
    kinds = _kinds(pairs, crossing, first, cut)
    groups = _groups(pairs, kinds)
    members = {
        # The small rounds of a second pass have few healthy pairs: all of their kind count.
        group: (kinds == group) & first if group < _KINDS else groups == group
        for group in np.unique(groups).tolist()
    }
    rates = np.empty(len(pairs))
    for group, theirs in members.items():
        rates[groups == group] = np.quantile(pairs.rate[theirs], _UPPER)
    for _ in range(_REPEATS):
        slow, *_ = suspicious(pairs.relative(rates).once(), cut)
        well = ~slow[pairs.a] & ~slow[pairs.b]
        well &= ~_over_slow_uplinks(pairs.relative(rates), crossing, leaf, cut)
        for group, theirs in members.items():
            if (well & theirs).sum() >= FEWEST:
                rates[groups == group] = np.median(pairs.rate[well & theirs])
    return rates


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


def _kinds(pairs: Pairs, crossing: Bools, first: Bools, cut: float) -> Ints:
    """Return 1 for pairs that cross leaves, 0 for others; all 0 if both are as fast."""
    if crossing.all() or not crossing.any():
        return np.zeros(len(pairs), np.int64)
    inside, across = (
        np.quantile(pairs.rate[which & first], _UPPER) for which in (~crossing, crossing)
    )
    alike = abs(inside - across) < -cut / 2
    return np.zeros(len(pairs), np.int64) if alike else crossing.astype(np.int64)


def _groups(pairs: Pairs, kinds: Ints) -> Ints:
    """Return a number for each kind, or for kind and round if most of the fleet is in it."""
    _, number = np.unique(pairs.round, return_inverse=True)
    group = _KINDS + _KINDS * number + kinds
    sizes = np.bincount(group)
    nodes = len(np.unique(np.concatenate([pairs.a, pairs.b])))
    full = np.bincount(number) * 4 >= nodes
    return np.where(full[number] & (sizes[group] >= _LARGE), group, kinds)
