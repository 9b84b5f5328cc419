# SPDX-License-Identifier: MIT
"""Find the leaves whose uplinks are slow: all pairs that cross them are, and inner pairs are not.

In each round a leaf counts once, with the rate that its best quarter of crossing pairs reaches: a
slow node or a slow leaf on the other side then does not count against it, and neither does what
disturbed the leaf in one round. A leaf is judged over its rounds as a node is over its pairs.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from busbar.cluster.sweep.localise import (
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

# The constants: value, meaning, and how to see what another value costs.
#   fleets  python -m tests.bench.sweep_fleet: recall and false accusations of docs/sweep-method.md
#   method  part of the method, with the reason above
PATH = 2  # method: leaves with one path between them
_LEAST_PAIRS = 2  # method: crossing pairs of a leaf in a round, so that it is not one node
_HALF = 0.5  # lab: by how much less inner pairs must be slow than crossing ones (logarithms)


Uplink: TypeAlias = tuple[int, ...]
"""The leaf whose uplinks are slow, or the only two leaves, which have one path between them."""


def slow_uplinks(
    pairs: Pairs, crossing: Bools, leaf: Ints, cut: float, *, relative: bool
) -> list[Uplink]:
    """Return the leaves whose crossing pairs are slower than ``cut``, and inner pairs are not.

    Pairs with a leaf that is slow inside say nothing about the other leaf.
    """
    well = _inner_is_well(pairs, leaf, cut)
    across = pairs.where(crossing & well[leaf[pairs.a]] & well[leaf[pairs.b]])
    ends, rates = _best_of_rounds(across, leaf, np.zeros(len(well), bool))
    found, rounds = best_of(ends, rates, len(well))
    known = np.isfinite(found)
    total = int(known.sum())
    if relative and total:
        cut += max(0.0, float(np.median(found[known])))
    slow = known & (found < cut)
    if relative and slow.sum() * 2 >= total:
        return []
    if slow.sum() == total:
        return _together(np.flatnonzero(slow & (rounds >= FEWEST)).tolist(), total)
    while True:
        ends, rates = _best_of_rounds(across, leaf, slow)
        found, rounds = best_of(ends, rates, len(well))
        remaining = slow & ~(found >= cut)
        if (remaining == slow).all():
            break
        slow = remaining
    healthy = known & ~slow
    farthest = cut
    if relative:
        distance = deviations(total) * scatter_of(found[healthy])
        farthest = min(cut, float(np.median(found[healthy])) - distance)
    null = np.sort(rates[healthy[ends]])
    return [
        (one,)
        for one in np.flatnonzero(slow & (rounds >= FEWEST) & (found < farthest)).tolist()
        if total * chance_of(rates[ends == one], null) < ALPHA
    ]


def _together(leaves: list[int], total: int) -> list[Uplink]:
    """Return the uplinks if no leaf has good ones: with two leaves, the slow side is unknown."""
    if total == PATH:
        return [(leaves[0], leaves[1])] if len(leaves) == PATH else []
    return [(one,) for one in leaves]


def touching(pairs: Pairs, crossing: Bools, leaf: Ints, uplink: Uplink) -> Bools:
    """Return which readings crossed an uplink."""
    ours = np.isin(leaf, uplink)
    return crossing & (ours[pairs.a] | ours[pairs.b])


def _best_of_rounds(pairs: Pairs, leaf: Ints, slow: Bools) -> tuple[Ints, Floats]:
    """Return leaf and score for each leaf and round with several pairs that cross.

    Pairs with a leaf in ``slow`` count for that leaf only.
    """
    _, number = np.unique(pairs.round, return_inverse=True)
    count = int(number.max()) + 1 if len(pairs) else 1
    one, other = leaf[pairs.a], leaf[pairs.b]
    keys = np.concatenate(
        [(one * count + number)[~slow[other]], (other * count + number)[~slow[one]]]
    )
    values = np.concatenate([pairs.rate[~slow[other]], pairs.rate[~slow[one]]])
    found, counts = best_of(keys, values, len(slow) * count)
    enough = np.flatnonzero(counts >= _LEAST_PAIRS)
    return enough // count, found[enough]


def _inner_is_well(pairs: Pairs, leaf: Ints, cut: float) -> Bools:
    """Return the leaves whose inner pairs are not slow, or were not measured.

    A small leaf has few inner pairs. If those with several leaves are fast, or far slower, its
    nodes are well enough.
    """
    pairs = pairs.once()
    count, ends = int(leaf.max()) + 1, (leaf[pairs.a], leaf[pairs.b])
    inner = (ends[0] == ends[1]) & (ends[0] >= 0)
    outer = (ends[0] != ends[1]) & (np.minimum(*ends) >= 0)
    inside, _ = best_of(ends[0][inner], pairs.rate[inner], count)
    leaves = np.concatenate([end[outer] for end in ends])
    outside, _ = best_of(leaves, np.tile(pairs.rate[outer], 2), count)
    elsewhere = (outside >= cut) | (inside > _HALF * outside)
    return ~(inside < cut) | (elsewhere & (len(np.unique(leaves)) > PATH))
