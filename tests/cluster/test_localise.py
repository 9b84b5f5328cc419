# SPDX-License-Identifier: MIT
"""Links that were measured again, against the readings of a healthy fleet."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pytest

from busbar.cluster.sweep.localise import ALPHA, Pairs, chance_of, locate, repeated
from busbar.cluster.sweep.uplinks import slow_uplinks
from tests.cases import cases

LINKS, AGAIN, SLOW = 1000, 100, -0.15


@cases(("disturbed", "accused"), [(0, [1]), (AGAIN, [])])
def test_links_measured_again_do_not_hide_how_often_readings_are_slow(disturbed, accused):
    """Link 0-1 is slow in seven of eight; ``disturbed`` others were slow once, then well."""
    a, b = np.arange(0, 2 * LINKS, 2), np.arange(1, 2 * LINKS, 2)
    first = np.zeros(LINKS)
    first[: disturbed + 1] = SLOW
    later = np.zeros((8, disturbed + 1))
    later[:7, 0] = SLOW
    rounds = np.concatenate([np.ones(LINKS), np.repeat(np.arange(2, 10), disturbed + 1)])
    again = np.tile(np.arange(disturbed + 1), 8)
    ends = np.arange(LINKS)
    links = np.concatenate([ends, again])
    rate = np.concatenate([first, later.ravel()])
    pairs = Pairs(2 * LINKS, rounds.astype(np.int64), a[links], b[links], rate)
    culprits = repeated(pairs, -0.1, np.ones(2 * LINKS, bool))
    assert [one.end for one in culprits if one.chance < ALPHA] == accused


def pairs_of(count: int, rows: Iterable[tuple[int, int, int, float]]) -> Pairs:
    number, a, b, rate = zip(*rows, strict=True)
    return Pairs(count, np.array(number), np.array(a), np.array(b), np.array(rate))


def test_a_burst_slows_one_reading_in_a_hundred_whatever_a_large_fleet_shows() -> None:
    assert chance_of(np.full(2, -9.0), np.linspace(0, 0.05, 1000)) == pytest.approx(1e-4)


def test_ends_that_met_only_each_other_are_slow_together_if_they_are_most_of_the_fleet() -> None:
    """Chance may pair a good one with three slow ones."""
    group = [(0, a, b, -1.0) for a, b in combinations(range(4), 2)]
    others = [(0, a, b, a * b % 3 * 0.01) for a, b in combinations(range(4, 20), 2)]
    whole = locate(pairs_of(4, group), -0.1, 4, relative=False)
    assert [one.end for one in whole.culprits] == [0, 1, 2, 3]
    part = locate(pairs_of(20, group + others), -0.1, 20, relative=False)
    assert (part.culprits, part.suspects) == ((), (0, 1, 2, 3))


def test_the_only_node_of_a_leaf_that_crosses_does_not_accuse_its_uplinks() -> None:
    """Four leaves of four nodes; node 0 is slow, and no other of its leaf crosses with it."""
    rows = []
    for number, peer in enumerate([1, 2, 3] * 2):
        one, other = {1, 2, 3} - {peer}
        rows += [(number, 0, 4 * peer + 3, -1.0), (number, 1, 2, 0.0)]
        rows += [(number, 4 * one + node, 4 * other + node, 0.01 * node) for node in range(3)]
        rows += [(number, 4 * peer, 4 * one + 3, 0.0), (number, 4 * peer + 1, 4 * other + 3, 0.0)]
    pairs, leaf = pairs_of(16, rows), np.repeat(np.arange(4), 4)
    assert not slow_uplinks(pairs, leaf[pairs.a] != leaf[pairs.b], leaf, -0.1, relative=False)
    # With a second one they are slow.
    rows += [(number, 1, 4 * (1 + number % 3) + 2, -1.0) for number in range(6)]
    pairs = pairs_of(16, rows)
    (found,) = slow_uplinks(pairs, leaf[pairs.a] != leaf[pairs.b], leaf, -0.1, relative=False)
    assert found == (0,)
