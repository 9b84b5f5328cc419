# SPDX-License-Identifier: MIT
"""A graph of links, its widest paths and its smallest cut.

A library of graphs takes longer to load than all else that ``busbar expect`` does.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

_GPU = "gpu"


@dataclass(frozen=True)
class Hop:
    """Parallel links between two neighbours."""

    start: str
    end: str
    link_class: str
    count: int
    gb_per_s: float
    """Raw rate in one direction."""

    def __str__(self) -> str:
        return (
            f"{self.start}-{self.end}: {self.count} x {self.link_class} = {self.gb_per_s:g} GB/s"
        )

    @property
    def reversed(self) -> Hop:
        """The same links in the other direction."""
        return replace(self, start=self.end, end=self.start)


@dataclass(frozen=True)
class Path:
    """A path through the links."""

    hops: tuple[Hop, ...]

    @property
    def gb_per_s(self) -> float:
        """Raw rate of the narrowest hop."""
        return self.binding.gb_per_s

    @property
    def binding(self) -> Hop:
        """The narrowest hop, the first of several."""
        return min(self.hops, key=lambda hop: hop.gb_per_s)

    @property
    def forwarding_gpus(self) -> int:
        """Number of GPUs that forward the data; switches and packages do not count."""
        return sum(hop.end.startswith(_GPU) for hop in self.hops[:-1])

    def describe(self) -> tuple[str, ...]:
        """Return the hops as text, the binding one marked."""
        return tuple(f"{hop} (binds)" if hop is self.binding else str(hop) for hop in self.hops)


def gpu(index: int) -> str:
    """Return the name of a GPU in the graph."""
    return f"{_GPU}{index}"


@dataclass(frozen=True)
class Graph:
    """The links of a node."""

    hops: dict[str, dict[str, Hop]]
    """By vertex and neighbour; links are in both directions."""
    ends: set[str] = field(default_factory=set)
    """GPUs that do not forward data."""

    def join(self, hop: Hop) -> None:
        """Add links in both directions."""
        self.hops.setdefault(hop.start, {})[hop.end] = hop
        self.hops.setdefault(hop.end, {})[hop.start] = hop.reversed

    def without(self, names: Collection[str]) -> Graph:
        """Return the graph without some vertices."""
        left = {
            name: {near: hop for near, hop in hops.items() if near not in names}
            for name, hops in self.hops.items()
            if name not in names
        }
        return Graph(left, self.ends)

    def rate(self, name: str) -> float:
        """Return GB/s of all links of a vertex."""
        return sum(hop.gb_per_s for hop in self.hops[name].values())


def widest_path(graph: Graph, start: str, end: str, hop_share: float = 1) -> Path | None:
    """Return the direct links of two GPUs, or the widest path; None without a path.

    A path carries the rate of its narrowest link, times ``hop_share`` for each forwarding GPU.
    Among equals the shortest is chosen, then the first by name.
    """
    if direct := graph.hops[start].get(end):
        return Path((direct,))
    best: tuple[float, Path] | None = None
    rates = {hop.gb_per_s for hops in graph.hops.values() for hop in hops.values()}
    for width in sorted(rates, reverse=True):
        if path := _shortest(graph, start, end, width):
            carried = path.gb_per_s * hop_share**path.forwarding_gpus
            if best is None or carried > best[0]:
                best = carried, path
    return best[1] if best else None


def _shortest(graph: Graph, start: str, end: str, width: float) -> Path | None:
    """Return the path with the fewest links of at least ``width``; None without one."""
    found: dict[str, tuple[Hop, ...]] = {start: ()}
    queue = [start]
    for name in queue:
        for near, hop in sorted(graph.hops[name].items()):
            forwards = near == end or near not in graph.ends
            if near not in found and hop.gb_per_s >= width and forwards:
                found[near] = (*found[name], hop)
                queue.append(near)
    return Path(found[end]) if end in found else None


def smallest_cut(graph: Graph) -> float:
    """Return the least GB/s between any two parts of a graph; 0 if they are not connected.

    M. Stoer, F. Wagner: A Simple Min-Cut Algorithm, Journal of the ACM 44 (1997), 585-591.
    """
    rates = {
        name: {near: hop.gb_per_s for near, hop in hops.items()}
        for name, hops in graph.hops.items()
    }
    least = math.inf
    while len(rates) > 1:
        added = dict.fromkeys(rates, 0.0)
        before = last = ""
        while added:
            before, last = last, max(added, key=lambda name: added[name])
            cut = added.pop(last)
            for near in added.keys() & rates[last]:
                added[near] += rates[last][near]
        least = min(least, cut)
        for near, rate in rates.pop(last).items():
            del rates[near][last]
            if near != before:
                rates[near][before] = rates[before][near] = rates[near].get(before, 0) + rate
    return least
