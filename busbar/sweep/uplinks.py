# SPDX-License-Identifier: MIT
"""Find the leaves whose uplinks are slow: all pairs that cross them are, and inner pairs are not.

In each round a leaf counts once, with the rate that its best quarter of crossing pairs reaches: a
slow node or a slow leaf on the other side then does not count against it, and neither does what
disturbed the leaf in one round. A leaf is judged over its rounds as a node is over its pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from busbar.sweep.localise import (
    ALPHA,
    FEWEST,
    Bools,
    Floats,
    Ints,
    Pairs,
    best_of,
    chance_of,
    deviations,
    scatter_of,
)

_LEAST_PAIRS = 2
"""Crossing pairs of a leaf in a round, so that it is not one node."""


@dataclass(frozen=True)
class Uplink:
    """The slow uplinks of a leaf, or the path between two leaves if there are no others."""

    leaves: tuple[int, ...]


def slow_uplinks(
    pairs: Pairs, crossing: Bools, leaf: Ints, cut: float, *, relative: bool
) -> list[Uplink]:
    """Return the leaves whose crossing pairs are slower than ``cut``, and inner pairs are not.

    Pairs with a leaf that is slow inside say nothing about the other leaf.
    """
    well = _inner_is_well(pairs, leaf, cut)
    ends, rates = _best_of_rounds(
        pairs.where(crossing & well[leaf[pairs.a]] & well[leaf[pairs.b]]), leaf
    )
    count = int(leaf.max()) + 1
    found, rounds = best_of(ends, rates, count)
    known = np.isfinite(found)
    total = int(known.sum())
    if relative and total:
        cut += max(0.0, float(np.median(found[known])))
    slow = known & (found < cut)
    healthy = known & ~slow
    if not slow.any() or (relative and slow.sum() * 2 >= total):
        return []
    farthest = cut
    if relative:
        distance = deviations(total) * scatter_of(found[healthy])
        farthest = min(cut, float(np.median(found[healthy])) - distance)
    null = np.sort(rates[healthy[ends]])
    culprits = [
        Uplink((one,))
        for one in np.flatnonzero((rounds >= FEWEST) & (found < farthest)).tolist()
        if total * chance_of(rates[ends == one], null) < ALPHA
    ]
    if total == len(culprits) == 2:
        # Nobody can say on which end of their only path the fault is.
        return [Uplink((*culprits[0].leaves, *culprits[1].leaves))]
    return culprits


def touching(pairs: Pairs, crossing: Bools, leaf: Ints, uplink: Uplink) -> Bools:
    """Return which readings crossed an uplink."""
    ours = np.isin(leaf, uplink.leaves)
    return crossing & (ours[pairs.a] | ours[pairs.b])


def _best_of_rounds(pairs: Pairs, leaf: Ints) -> tuple[Ints, Floats]:
    """Return leaf and score for each leaf and round with several pairs that cross."""
    rounds, number = np.unique(pairs.round, return_inverse=True)
    leaves = np.concatenate([leaf[pairs.a], leaf[pairs.b]])
    keys = leaves * max(1, len(rounds)) + np.concatenate([number, number])
    size = (int(leaf.max()) + 1) * max(1, len(rounds))
    found, counts = best_of(keys, np.concatenate([pairs.rate, pairs.rate]), size)
    enough = np.flatnonzero(counts >= _LEAST_PAIRS)
    return enough // max(1, len(rounds)), found[enough]


def _inner_is_well(pairs: Pairs, leaf: Ints, cut: float) -> Bools:
    """Return the leaves whose inner pairs are not slow, or were not measured."""
    inner = (leaf[pairs.a] == leaf[pairs.b]) & (leaf[pairs.a] >= 0)
    found, _ = best_of(leaf[pairs.a[inner]], pairs.rate[inner], int(leaf.max()) + 1)
    return ~(found < cut)
