# SPDX-License-Identifier: MIT
"""The physical limit of a collective per algorithm, as bus bandwidth of nccl-tests.

Within a node each ring crosses every cut of the links, so all rings together stay below the
smallest cut. Between N nodes with NICs of B in each direction, n ranks, g of them per node:

- ring: bus bandwidth <= B;
- any algorithm without reduction in the network: all-reduce moves at least half of its data in
  and half out, so its algorithm bandwidth <= B * N / (2 * (N - 1)) (NVIDIA/nccl issue 812 and
  NVIDIA/nccl-tests issue 196 report readings that only this bound explains).

Within a node NVLink SHARP reduces in the switch: each GPU sends its data once and the reduced
share once, so algorithm bandwidth <= B / (1 + 1/g).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from busbar.errors import BusbarError
from busbar.expect.topology import Graph, gpu, narrowest_ring_path, node_graph, raw_rate
from busbar.site.family import LinkClass
from busbar.site.model import NodeType

RING, TREE, NVLS = "ring", "tree", "nvls"
ALGORITHMS = (RING, TREE, NVLS)


@dataclass(frozen=True)
class Bound:
    """The largest possible bus bandwidth, and what limits it."""

    gb_per_s: float
    path: tuple[str, ...]


@dataclass(frozen=True)
class _Inside:
    """Capacities within a node, GB/s in one direction."""

    cut: float
    """The minimum cut of the links between the ranks."""
    weakest: float
    """Links of the GPU with the fewest."""
    mean: float
    """Links of a GPU on average."""
    neighbours: float
    """The narrowest path from a rank to the next."""


def factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as in PERFORMANCE.md of nccl-tests."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall"):
        return (ranks - 1) / ranks
    return 1.0


def bound(
    node: NodeType,
    classes: dict[str, LinkClass],
    collective: str,
    *,
    nodes: int,
    ranks_per_node: int,
    algo: str | None,
) -> Bound:
    """Return the bound for ``algo``; None: the largest of the algorithms that the nodes support.

    Where the site does not say whether the switch has multicast, the bound allows for it. Raises
    ``BusbarError`` for an unknown algorithm, for NVLS without multicast, and for GPUs
    without links.
    """
    if algo not in (None, *ALGORITHMS):
        raise BusbarError(f"unknown algorithm {algo!r}", hint=f"known: {', '.join(ALGORITHMS)}")
    multicast = bool(node.gpus and node.gpus.may_multicast)
    if algo == NVLS and not multicast:
        raise BusbarError(
            "NVLS needs multicast in the switch, which is off on these nodes",
            hint="set gpus.multicast in site.yaml if it is on",
        )
    candidates = [algo] if algo else [RING, TREE, *([NVLS] if multicast else [])]
    inside = None
    if ranks_per_node > 1:
        inside = _inside(node, tuple(classes.items()), ranks_per_node)
    bounds = [
        _bound(node, classes, collective, one, nodes, ranks_per_node, inside) for one in candidates
    ]
    return max(bounds, key=lambda candidate: candidate.gb_per_s)


def network(node: NodeType, classes: dict[str, LinkClass]) -> float:
    """Return GB/s in one direction through all NICs. Raises ``BusbarError`` without NICs."""
    if not node.nics:
        raise BusbarError("the node type has no NICs", hint="add nics to the node type")
    return sum(raw_rate(nic.link_class, nic.count, classes) for nic in node.nics)


def _bound(  # noqa: PLR0917 - a physical model has as many parameters as it has
    node: NodeType,
    classes: dict[str, LinkClass],
    collective: str,
    algo: str,
    nodes: int,
    per_node: int,
    inside: _Inside | None,
) -> Bound:
    ranks = nodes * per_node
    to_bus = factor(collective, ranks)
    terms: list[tuple[float, str]] = []
    if inside:
        value = _inside_bus(inside, collective, algo, per_node)
        if nodes > 1 and algo != RING:
            # Each node does its share of the work at the rate of its own links.
            value *= to_bus / factor(collective, per_node)
        terms.append((value, f"inside the node, {algo}"))
    if nodes > 1:
        rate = network(node, classes)
        value = rate
        if collective == "alltoall":
            value = rate * (ranks - 1) / (per_node * (ranks - per_node))
        elif algo != RING and collective in ("all_reduce", "all_gather", "reduce_scatter"):
            value = rate * nodes / (nodes - 1) * (ranks - 1) / ranks
        terms.append((value, f"{node.nic_count} NICs with {rate:g} GB/s per node, {algo}"))
    if not terms:
        raise BusbarError("a collective needs two ranks or more", hint="increase the ranks")
    least = min(value for value, _ in terms)
    path = tuple(
        f"{text}: busbw <= {value:.4g} GB/s{' (binds)' if value == least else ''}"
        for value, text in terms
    )
    return Bound(least, path)


def _inside_bus(inside: _Inside, collective: str, algo: str, ranks: int) -> float:
    if collective == "sendrecv":
        return inside.neighbours
    if algo == RING or collective == "broadcast":
        return inside.cut
    if collective != "all_reduce":
        return inside.weakest
    if algo == NVLS:
        return factor(collective, ranks) * inside.weakest / (1 + 1 / ranks)
    # All data crosses every cut once in each direction; the GPUs send it 2 (n - 1) times in all.
    return min(inside.mean, factor(collective, ranks) * inside.cut)


@lru_cache  # each reading needs it, and for 64 GPUs it takes half a second
def _inside(node: NodeType, classes: tuple[tuple[str, LinkClass], ...], ranks: int) -> _Inside:
    if node.gpus is None or ranks > node.gpus.count:
        count = node.gpus.count if node.gpus else 0
        raise BusbarError(
            f"{ranks} ranks per node do not fit on {count} GPUs",
            hint="use fewer ranks or more nodes",
        )
    import networkx as nx  # noqa: PLC0415 - takes longer to load than most commands need

    graph = _restricted(node_graph(node, dict(classes)), ranks)
    if not nx.is_connected(graph):
        raise BusbarError("links do not connect all GPUs of a node, so data passes the host")
    cut, _ = nx.stoer_wagner(graph, weight="gb_per_s")
    degrees = [graph.degree(gpu(index), weight="gb_per_s") for index in range(ranks)]
    return _Inside(
        cut=float(cut),
        weakest=float(min(degrees)),
        mean=float(sum(degrees)) / ranks,
        neighbours=narrowest_ring_path(graph, ranks),
    )


def _restricted(graph: Graph, ranks: int) -> Graph:
    """Remove the GPUs without a rank, and the packages without a used GPU.

    Libraries do not route through an idle accelerator, so the bound excludes it.
    """
    used = {gpu(index) for index in range(ranks)}
    kept = graph.subgraph([n for n in graph if n in used or not n.startswith("gpu")]).copy()
    idle = [n for n in kept if n.startswith("package") and used.isdisjoint(kept[n])]
    kept.remove_nodes_from(idle)
    return kept
