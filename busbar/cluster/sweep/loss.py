# SPDX-License-Identifier: MIT
"""Find the nodes that lose packets of TCP, by the segments that each sender sends again.

A node that loses what it receives makes all its partners send again, and one that loses what it
sends does so itself, however fast the pairs are. The node and direction with the most such
readings explains them; what it does not explain may show another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median, quantiles
from typing import NamedTuple

from busbar.cluster.sweep.accusation import Accusation
from busbar.cluster.sweep.rows import MeasuredPair
from busbar.parse.port_counters import Direction
from busbar.robust import chance_of_so_many
from busbar.words import grouped

# The constants: value, meaning, and how to see what another value costs.
#   lab     python -m tests.bench.sweep_lab: 1 % of the packets of a node are dropped
#   method  part of the method
_SHARE = 0.003  # lab: of the segments, above which a reading shows loss; healthy ones reach 0.001
_MORE = 4  # method: how many times what three quarters of the readings have at most
_FEWEST = 3  # method: such readings, with different partners, that accuse a node
_PART = 0.3  # lab: share of a node's readings that must show it
_SUSPECT = 2, 0.2  # lab: readings and their share that make a node a suspect, to measure it again
_CHANCE = 0.01  # method: of a false accusation in one sweep

_DIRECTIONS: tuple[Direction, ...] = ("sending", "receiving")


class _Reading(NamedTuple):
    sender: str
    receiver: str
    share: float


class Loss(NamedTuple):
    """The nodes that lose packets, and those that may."""

    accused: tuple[Accusation, ...] = ()
    suspects: frozenset[str] = frozenset()


def lossy(rows: Iterable[MeasuredPair]) -> Loss:
    """Return the nodes that lose packets, with the direction."""
    left = [reading for row in rows if row.resent and row.b for reading in _both(row)]
    found: list[Accusation] = []
    if len(left) < _FEWEST:
        return Loss()
    high = max(_SHARE, _MORE * quantiles([each.share for each in left], n=4)[2])
    while worst := max(_candidates(left, high), default=None):
        _, node, direction = worst
        mine = [each for each in left if _end(each, direction) == node]
        share = median(each.share for each in mine if each.share > high)
        who = "it sends" if direction == "sending" else "its partners send to it"
        count = sum(each.share > high for each in mine)
        text = (
            f"{share:.1%} of the segments that {who} are retransmitted, in {count} of {len(mine)}"
            " readings"
        )
        found.append(Accusation(node, "node", text, (node,), direction, "loss"))
        left = [each for each in left if _end(each, direction) != node]
    few, part = _SUSPECT
    doubtful = {
        node
        for direction in _DIRECTIONS
        for node, mine in grouped((_end(each, direction), each) for each in left).items()
        if sum(each.share > high for each in mine) >= max(few, part * len(mine))
    }
    return Loss(tuple(found), frozenset(doubtful))


def with_loss(accused: Iterable[Accusation], lossy: Sequence[Accusation]) -> list[Accusation]:
    """Add the nodes that lose packets: one that is slow has both in its evidence.

    A TCP connection stays slow for seconds after a loss. Its link is not to blame for that.
    """
    of = {one.id: one for one in lossy}
    found = [
        replace(one, evidence=f"{one.evidence}; {of[one.id].evidence}") if one.id in of else one
        for one in accused
        if one.kind != "link" or not of.keys() & {*one.nodes}
    ]
    known = {one.id for one in found}
    return [*found, *(one for one in lossy if one.id not in known)]


def _both(row: MeasuredPair) -> Iterator[_Reading]:
    forth, back = row.resent or (0.0, 0.0)
    yield _Reading(row.a, row.b, forth)
    yield _Reading(row.b, row.a, back)


def _end(reading: _Reading, direction: Direction) -> str:
    return reading.sender if direction == "sending" else reading.receiver


def _candidates(left: list[_Reading], high: float) -> Iterator[tuple[float, str, Direction]]:
    """Yield share of readings with loss, node and direction of each that can be accused."""
    every = sum(each.share > high for each in left)
    if every < _FEWEST:
        return
    for direction in _DIRECTIONS:
        of = grouped((_end(each, direction), each) for each in left)
        for node, mine in of.items():
            lost = [each for each in mine if each.share > high]
            partners = {each.sender + each.receiver for each in lost}
            if len(partners) < _FEWEST or len(lost) < _PART * len(mine):
                continue
            others = (every - len(lost) + 1) / (len(left) - len(mine) + 2)
            if chance_of_so_many(len(lost), len(mine), others) * 2 * len(of) < _CHANCE:
                yield len(lost) / len(mine), node, direction
