# SPDX-License-Identifier: MIT
"""Plans of a sweep: matchings, everybody's turn, leaves in turn, uplinks all used."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from busbar.cluster.sweep.plan import MOST_ROWS, plan
from busbar.cluster.sweep.rows import PlannedPair
from busbar.errors import BusbarError
from busbar.slurm.topology import SwitchTopology
from tests.cases import cases


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def leaves(*sizes: int) -> SwitchTopology:
    of = [f"leaf{leaf}" for leaf, size in enumerate(sizes) for _ in range(size)]
    return SwitchTopology({f"n{number}": leaf for number, leaf in enumerate(of)})


def by_round(rows: list[PlannedPair]) -> list[list[tuple[str, str]]]:
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        found[row.round].append((row.a, row.b))
    return [found[number] for number in sorted(found)]


SHAPES = [(2,), (3,), (9,), (64,), (4, 4), (3, 3), (1, 4, 4), (5, 2, 1, 7), (1, 32, 32), (20, 2)]
SHAPES += [(16,) * 8, (1,) * 7, (7, 7, 7)]


@cases("rounds", [1, 2, 7, 20])
def test_rounds_are_matchings(rounds: int) -> None:
    for sizes in SHAPES:
        count = sum(sizes)
        if count > 9 and rounds == 20:
            continue  # they take seconds, and show no more than in 7 rounds
        everybody = set(names(count))
        found = by_round(plan(names(count), leaves(*sizes), rounds, seed=3))
        assert (len(found), sizes) == (rounds, sizes)
        outs: list[str] = []
        for pairs in found:
            present = [node for pair in pairs for node in pair]
            assert len(set(present)) == len(present) == count - count % 2, sizes
            outs += everybody - set(present)
        # Nobody sits out again before everybody did.
        assert (len(outs), sizes) == (rounds * (count % 2), sizes)
        assert not outs or max(Counter(outs).values()) <= -(-rounds // count), sizes


def test_everybody_meets_everybody_without_leaves() -> None:
    for count in (2, 5, 8, 9, 64):
        rows = plan(names(count), SwitchTopology(), count - 1 + count % 2, seed=1)
        pairs = {frozenset((row.a, row.b)) for row in rows}
        assert len(pairs) == len(rows) == count * (count - 1) / 2


def test_all_pairs_of_two_leaves_in_seven_rounds() -> None:
    topology = leaves(4, 4)
    leaf = topology.leaf_of
    for seed in range(20):
        found = by_round(plan(names(8), topology, 7, seed))
        assert len({frozenset(pair) for pairs in found for pair in pairs}) == 28, seed
        crossing = [{leaf[a] != leaf[b] for a, b in pairs} for pairs in found]
        assert [number for number in range(7) if crossing[number] == {False}] == [0, 3, 5], seed
        assert crossing.count({True}) == 4, seed


def test_every_uplink_carries_many_pairs_to_many_leaves() -> None:
    topology = leaves(*(32,) * 40)
    found = by_round(plan(names(1280), topology, 8, seed=5))
    others: dict[str, set[str]] = defaultdict(set)
    met = Counter(frozenset(pair) for pairs in found for pair in pairs)
    assert max(met.values()) == 1
    for number, pairs in enumerate(found):
        crossing = [(topology.leaf_of[a], topology.leaf_of[b]) for a, b in pairs]
        assert all((a == b) == (number % 2 == 0) for a, b in crossing)
        for a, b in crossing if number % 2 else ():
            others[a].add(b)
            others[b].add(a)
    assert min(map(len, others.values())) > 30


def test_a_seed_repeats_a_plan_and_another_does_not() -> None:
    plans = [plan(names(50), leaves(20, 20, 10), 6, seed) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert all(one.round <= other.round for one, other in pairwise(plans[0]))


def test_nodes_outside_the_topology_are_paired() -> None:
    found = by_round(plan([*names(6), "x", "y"], leaves(3, 3), 4, seed=0))
    assert [len(pairs) for pairs in found] == [4] * 4


def test_a_plan_is_bounded() -> None:
    with pytest.raises(BusbarError, match="at most"):
        plan(names(10), SwitchTopology(), MOST_ROWS, 0)
