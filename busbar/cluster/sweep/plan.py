# SPDX-License-Identifier: MIT
"""Plan a sweep: in each round all nodes measure in pairs, at the same time.

Half of the rounds pair nodes of one leaf, the others nodes of different leaves. Inside a leaf, and
in a fleet without leaves, the circle method pairs everybody with everybody before a pair meets
again. Between leaves a random matching is improved by exchanging partners until no pair is of one
leaf or has met before, as far as the sizes of the leaves allow that. Half of the leaves send first
in each of these rounds, to nodes of all others: every uplink is full, in one direction at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from busbar.cluster.sweep.rows import PlannedPair
from busbar.errors import BusbarError
from busbar.slurm.topology import SwitchTopology
from busbar.words import grouped

MOST_ROWS = 10_000_000
_SMALL = 128
"""Largest number of nodes for which a matching with unwanted pairs is tried again."""
_TRIES = 50
Pairs = list[tuple[int, int]]


def plan(
    nodes: Sequence[str], topology: SwitchTopology, rounds: int, seed: int, first_round: int = 1
) -> list[PlannedPair]:
    """Return the pairs of every round; the same arguments give the same plan."""
    if rounds * (len(nodes) // 2) > MOST_ROWS:
        what = f"a plan has at most {MOST_ROWS:,} pairs, got {rounds * (len(nodes) // 2):,}"
        raise BusbarError(what, where="--rounds", hint="use fewer --rounds")
    planner = _Planner(_leaf_numbers(nodes, topology), rounds, Random(seed))  # noqa: S311
    return [
        PlannedPair(number, nodes[a], nodes[b])
        for number, pairs in enumerate(planner.rounds(), first_round)
        for a, b in sorted(pairs)
    ]


def _leaf_numbers(nodes: Sequence[str], topology: SwitchTopology) -> list[int]:
    """Return a number for the leaf of each node; one without a known leaf has its own."""
    numbers: dict[str, int] = {}
    return [
        numbers.setdefault(f"leaf {leaf}" if (leaf := topology.leaf_of.get(node)) else node, n)
        for n, node in enumerate(nodes)
    ]


def circle(members: Sequence[int], turn: int) -> tuple[Pairs, list[int]]:
    """Return the pairs of one turn of a round robin, and who is left over.

    After ``turns(len(members))`` turns everybody has met everybody once.
    """
    size = len(members) + len(members) % 2
    seats = [0] + [1 + (seat + turn) % (size - 1) for seat in range(size - 1)]
    pairs, left = [], []
    for one, other in zip(seats[: size // 2], reversed(seats[size // 2 :]), strict=True):
        present = [members[seat] for seat in (one, other) if seat < len(members)]
        if len(present) == 2:
            pairs.append((present[0], present[1]))
        else:
            left += present
    return pairs, left


def turns(size: int) -> int:
    """Return the number of turns after which all pairs have met."""
    return size - 1 + size % 2


class _Planner:
    """The state that the rounds of a plan share."""

    def __init__(self, leaf: Sequence[int], rounds: int, random: Random) -> None:
        self._count = rounds
        self._random = random
        self._leaf = np.array(leaf)
        self._leaves = list(grouped((number, node) for node, number in enumerate(leaf)).values())
        if len(self._leaves) == len(leaf):
            self._leaves = [list(range(len(leaf)))]  # nothing is known of the switches
            self._leaf[:] = 0
        for one in self._leaves:
            random.shuffle(one)
        self._sat_out = np.zeros(len(leaf), int)
        self._past: list[NDArray[np.int64]] = []
        """Partners in each of the last rounds, the node itself if it had none."""

    def rounds(self) -> Iterator[Pairs]:
        """Yield the pairs of each round."""
        longest = max(turns(len(one)) for one in self._leaves)
        inner = self._count if len(self._leaves) == 1 else min(max(self._count // 2, 1), longest)
        turn = -1
        for number in range(self._count):
            # In turns, so that what disturbs a node for a while does not slow all its inner pairs.
            inside = number * inner % self._count < inner
            turn += inside
            pairs, left = self._inner(turn) if inside else ([], list(range(len(self._leaf))))
            pairs, left = self._leave_one_out(pairs, left)
            pairs += self._across(left)
            self._remember(pairs)
            yield pairs

    def _inner(self, number: int) -> tuple[Pairs, list[int]]:
        """Pair nodes inside their leaves; a leaf whose pairs have all met is left over."""
        pairs: Pairs = []
        left: list[int] = []
        for members in self._leaves:
            if number >= turns(len(members)) and len(self._leaves) > 1:
                left += members
                continue
            met, alone = circle(members, number)
            pairs += met
            left += alone
        return pairs, left

    def _leave_one_out(self, pairs: Pairs, left: list[int]) -> tuple[Pairs, list[int]]:
        """Make an odd number of nodes even: no node sits out twice before all others have."""
        if len(left) % 2 == 0:
            return pairs, left
        fewest = self._sat_out.min()
        candidates = [node for node in left if self._sat_out[node] == fewest]
        if candidates:
            out = self._random.choice(candidates)
        else:
            out = self._random.choice(np.flatnonzero(self._sat_out == fewest).tolist())
            broken = next(pair for pair in pairs if out in pair)
            pairs = [pair for pair in pairs if pair != broken]
            left = [*left, *broken]
        self._sat_out[out] += 1
        return pairs, [node for node in left if node != out]

    def _across(self, nodes: list[int]) -> Pairs:
        """Pair an even number of nodes, preferably from different leaves and not yet paired."""
        if not nodes:
            return []
        tries = _TRIES if len(nodes) <= _SMALL else 1
        best, least = np.empty((0, 2), int), None
        for _ in range(tries):
            pairs = self._improved(self._drawn(nodes))
            cost = int(self._cost(pairs[:, 0], pairs[:, 1]).sum())
            if least is None or cost < least:
                best, least = pairs, cost
            if not least:
                break
        return [(int(a), int(b)) for a, b in best]

    def _drawn(self, nodes: list[int]) -> NDArray[np.int64]:
        """Return random pairs of opposite halves of the leaves: the first sends, then receives.

        Whole leaves send at the same time, so that the load of all uplinks is alike, and full.
        """
        order = self._random.sample(nodes, len(nodes))
        ranks = {leaf: rank for rank, leaf in enumerate(dict.fromkeys(self._leaf[order]))}
        order.sort(key=lambda node: ranks[self._leaf[node]])
        half = len(order) // 2
        # Else all nodes of a leaf would meet the same leaf, and its slow uplinks look like theirs.
        order[half:] = self._random.sample(order[half:], len(order) - half)
        return np.column_stack([order[:half], order[half:]])

    def _improved(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exchange partners of bad pairs with other pairs while that makes the matching better."""
        cost = self._cost(pairs[:, 0], pairs[:, 1])
        waiting = np.flatnonzero(cost).tolist()
        while waiting:
            bad = waiting.pop()
            if not cost[bad]:
                continue
            a, b = pairs[bad]
            options = [
                (self._cost(a, pairs[:, 0]), self._cost(b, pairs[:, 1])),
                (self._cost(a, pairs[:, 1]), self._cost(b, pairs[:, 0])),
            ]
            gains = [cost + cost[bad] - one - other for one, other in options]
            for gain in gains:
                gain[bad] = 0
            crossed = int(gains[1].max() >= gains[0].max())  # keeps who sends first
            other = int(gains[crossed].argmax())
            if gains[crossed][other] <= 0:
                continue
            c, d = pairs[other] if not crossed else pairs[other][::-1]
            pairs[bad], pairs[other] = (a, c), ((d, b) if crossed else (b, d))
            for changed in (bad, other):
                cost[changed] = self._cost(*pairs[changed, :, None])[0]
                if cost[changed]:
                    waiting.append(changed)
        return pairs

    def _cost(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how bad pairs are: two nodes of a leaf, or that have met before."""
        same: NDArray[np.int64] = (self._leaf[a] == self._leaf[b]).astype(np.int64)
        for partners in self._past:
            same += partners[a] == b
        return same

    def _remember(self, pairs: Pairs) -> None:
        partners = np.arange(len(self._leaf))
        for a, b in pairs:
            partners[a], partners[b] = b, a
        self._past = [*self._past, partners][-turns(len(self._leaf)) + 1 :]
