# SPDX-License-Identifier: MIT
"""The sentences that say why something is accused."""

from __future__ import annotations

import math

import numpy as np

from busbar.cluster.sweep.localise import Bools, Culprit, Floats, Pairs


def gb_per_s(rates: Floats) -> float:
    """Return the median of rates, which are logarithms, in GB/s."""
    return math.exp(float(np.median(rates)))


def of_node(pairs: Pairs, culprit: Culprit, candidates: Bools, expected: str) -> str:
    """Return the evidence against one end. ``expected`` is what a pair must reach."""
    mine = (pairs.a == culprit.end) | (pairs.b == culprit.end)
    others = np.where(pairs.a == culprit.end, pairs.b, pairs.a)[mine]
    rates = pairs.rate[mine]
    if culprit.common:
        return (
            f"{_range(rates)} in {len(rates)} pairs; {expected}; all its "
            "partners are equally slow, so the cause may be common"
        )
    with_healthy = ~candidates[others]
    theirs = np.isin(pairs.a, others[with_healthy]) | np.isin(pairs.b, others[with_healthy])
    return (
        f"{_range(rates[with_healthy])} in {culprit.pairs} pairs with different healthy nodes"
        f"{_elsewhere(pairs.rate[theirs & ~mine], ', which reach')}; {expected};"
        f" {_chance(culprit)}"
    )


def of_link(pairs: Pairs, a: int, b: int, culprit: Culprit, expected: str) -> str:
    """Return the evidence against the path between two nodes that are both well."""
    mine = (np.minimum(pairs.a, pairs.b) == a) & (np.maximum(pairs.a, pairs.b) == b)
    ends = np.isin(pairs.a, (a, b)) | np.isin(pairs.b, (a, b))
    return (
        f"{_range(pairs.rate[mine])} in {int(mine.sum())} readings"
        f"{_elsewhere(pairs.rate[ends & ~mine], ', while both nodes reach')}; {expected};"
        f" {_chance(culprit)}"
    )


def of_uplink(pairs: Pairs, mine: Bools, inner: Bools, others: Bools, expected: str) -> str:
    """Return the evidence against uplinks that ``mine`` cross and ``others`` do not."""
    inside = f"{gb_per_s(pairs.rate[inner]):.4g} GB/s inside" if inner.any() else "none inside"
    rest = f" (others {gb_per_s(pairs.rate[others]):.4g} GB/s)" if others.any() else ""
    rounds = len(np.unique(pairs.round[mine]))
    return (
        f"{_range(pairs.rate[mine])}{rest} in {int(mine.sum())} pairs that cross it in {rounds}"
        f" rounds; {inside}; {expected}"
    )


def _elsewhere(rates: Floats, words: str) -> str:
    return f"{words} {gb_per_s(rates):.4g} GB/s with others" if len(rates) else ""


def _range(rates: Floats) -> str:
    least, most = math.exp(float(rates.min())), math.exp(float(rates.max()))
    return f"{least:.4g} to {most:.4g} GB/s" if most > least else f"{least:.4g} GB/s"


def _chance(culprit: Culprit) -> str:
    return f"the chance of this in a healthy fleet is below {max(culprit.chance, 1e-30):.0e}"
