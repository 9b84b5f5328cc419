# SPDX-License-Identifier: MIT
"""The second pass of a sweep: suspects with partners that are known to be good."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from busbar.cluster.sweep.rows import Name, PlannedPair
from busbar.words import grouped

# The constants: `python -m tests.bench.sweep_fleet` shows what other values cost.
PARTNERS = 4  # measurements of each suspect, with different partners
REPEATS = 4  # of a suspected link, as its first reading proves nothing (`localise.repeated`)
_MOST_USED = 2  # suspects for each good node of a leaf; those of other leaves are met beyond


@dataclass(frozen=True)
class SuspectPair:
    """Two nodes that the second pass should measure together."""

    a: Name
    """The suspect, or one end of a suspected link."""
    b: Name
    """A node that is known to be good, or the other end."""


def pairs_of_suspects(
    suspects: Sequence[int],
    good: Sequence[int],
    leaf: Sequence[int],
    met: Iterable[tuple[int, int]],
) -> Iterator[tuple[int, int]]:
    """Yield each suspect with good nodes: of its leaf, not yet met and rarely used, if possible.

    ``leaf`` tells different kinds of nodes on one leaf apart: a slower partner would hide a fault.
    A leaf with few good nodes for many suspects would need a round for each: they meet nodes of
    other leaves, which shared uplinks may hide, and half as many of their own, good or not.
    Without good nodes the suspects meet their earlier partners again.
    """
    known: dict[int, set[int]] = {one: set() for one in suspects}
    for a, b in met:
        if a in known:
            known[a].add(b)
        if b in known:
            known[b].add(a)
    many = Counter(leaf[one] for one in suspects)
    near_by = grouped((leaf[one], one) for one in good).items()
    by_leaf = {one: deque(ends) for one, ends in near_by if many[one] <= _MOST_USED * len(ends)}
    crowds = grouped((leaf[one], one) for one in (*suspects, *good) if leaf[one] >= 0)
    crowd = {one: deque(ends) for one, ends in crowds.items() if one not in by_leaf}
    everywhere = deque(good)
    done: set[frozenset[int]] = set()
    for suspect in suspects:
        near = by_leaf.get(leaf[suspect], deque()) if leaf[suspect] >= 0 else deque[int]()
        partners = _next(near, known[suspect], set(), PARTNERS)
        theirs = crowd.get(leaf[suspect], deque())
        partners += _next(theirs, set(), known[suspect] | {suspect}, PARTNERS // 2)
        partners += _next(everywhere, known[suspect], set(partners), PARTNERS - len(partners))
        for partner in partners or sorted(known[suspect])[:PARTNERS]:
            if frozenset((suspect, partner)) not in done:
                done.add(frozenset((suspect, partner)))
                yield suspect, partner


def _next(nodes: deque[int], known: set[int], taken: set[int], count: int) -> list[int]:
    """Return the next nodes in turn that are not ``taken``, and not ``known`` if possible."""
    found: list[int] = []
    for again in (False, True):
        for _ in range(len(nodes)):
            if len(found) >= count:
                return found
            one = nodes[0]
            nodes.rotate(-1)
            if one not in taken and one not in found and (one in known) == again:
                found.append(one)
    return found


class Partners:
    """Good nodes to measure others with, in turn, nodes of the same leaf first."""

    def __init__(self, good: Sequence[str], leaf_of: Mapping[str, str]) -> None:
        self._leaf_of = leaf_of
        self._all = deque(good)
        self._near = {
            leaf: deque(nodes)
            for leaf, nodes in grouped((leaf_of.get(node), node) for node in good).items()
        }

    def of(self, node: str, count: int = 1) -> list[str]:
        """Return the requested number of nodes of its leaf, or of all leaves if it has too few."""
        near = self._near.get(self._leaf_of.get(node), deque())
        near = near if len(near) >= count else self._all
        near.rotate(-count)
        return [near[at] for at in range(min(count, len(near)))]

    def in_turn(self, link: SuspectPair, count: int) -> Iterator[SuspectPair]:
        """Yield a link repeatedly, alternating with each end and a neighbour of the other end.

        All take the same path, so a temporary disturbance of an end or of the path, or a
        collision, slows them too.
        """
        for _ in range(count):
            yield link
            yield from (SuspectPair(link.a, other) for other in self.of(link.b))
            yield from (SuspectPair(link.b, other) for other in self.of(link.a))


def plan_suspects(pairs: Iterable[SuspectPair], first_round: int) -> list[PlannedPair]:
    """Return rounds in which every suspect pair measures; no node is in a round twice.

    Between two readings of a pair others have a round, as something may disturb it for a while.
    """
    rounds: list[set[str]] = []
    chosen: list[tuple[int, SuspectPair]] = []
    free: Counter[SuspectPair] = Counter()
    for pair in pairs:
        number = free[pair]
        while number < len(rounds) and rounds[number] & {pair.a, pair.b}:
            number += 1
        rounds += [set() for _ in range(number + 1 - len(rounds))]
        rounds[number] |= {pair.a, pair.b}
        free[pair] = number + 2
        chosen.append((number, pair))
    used = sorted({number for number, _ in chosen})
    place = {number: first_round + at for at, number in enumerate(used)}
    rows = [PlannedPair(place[number], pair.a, pair.b) for number, pair in chosen]
    return sorted(rows, key=lambda row: row.round)
