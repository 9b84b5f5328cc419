# SPDX-License-Identifier: MIT
"""The nodes that checks run on with --nodelist: each alone, then in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class NodePlace:
    """Nodes of one partition that a job takes."""

    partition: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class NodeSweep:
    """The nodes to test, by partition."""

    nodes: dict[str, tuple[str, ...]]
    only: tuple[NodePlace, ...] = ()
    """The places to repeat; empty for all."""

    def places(self, partition: str, count: int) -> list[NodePlace]:
        """Return the places for a check that takes ``count`` nodes of a partition.

        Pairs are neighbours in a ring: each node is in two pairs, and half of the pairs have no
        node in common, so that they run at the same time. Groups of more than two nodes are
        disjoint.
        """
        if self.only:
            return [
                place
                for place in self.only
                if place.partition == partition and len(place.nodes) == count
            ]
        nodes = self.nodes.get(partition, ())
        if count > len(nodes):
            return []
        if count == 1:
            groups: Sequence[tuple[str, ...]] = [(node,) for node in nodes]
        elif count == 2:
            groups = ring(nodes)
        else:
            groups = [tuple(nodes[:count])]
        return [NodePlace(partition, group) for group in groups]


def ring(nodes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the pairs of neighbours, ordered so that disjoint pairs come together."""
    if len(nodes) < 3:
        return [tuple(nodes)] if len(nodes) == 2 else []
    pairs = [(node, nodes[(n + 1) % len(nodes)]) for n, node in enumerate(nodes)]
    return [*pairs[::2], *pairs[1::2]]


@dataclass(frozen=True)
class Order:
    """The second message to the ReFrame process: what to run, and where."""

    hashes: tuple[str, ...]
    """ReFrame's hashes."""
    sweep: NodeSweep | None = None
    """The nodes to test; None lets the scheduler choose."""
