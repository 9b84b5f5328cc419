# SPDX-License-Identifier: MIT
"""What the links can carry at most of a collective, per algorithm, as bus bandwidth of nccl-tests.

Inside a node each ring crosses every cut of the links, so the rings together stay below the
smallest cut. Between N nodes with NICs of B in each direction, n ranks, g of them in a node:

- ring: bus bandwidth <= B;
- any algorithm without reduction in the network: all-reduce moves half of its data in and half
  out at least, so its algorithm bandwidth <= B * N / (2 * (N - 1)) (NVIDIA/nccl issue 812 and
  NVIDIA/nccl-tests issue 196 report readings that only this bound explains).

Inside a node NVLink SHARP reduces in the switch: each GPU sends its data once and the reduced
share once, so algorithm bandwidth <= B / (1 + 1/g).
"""

from __future__ import annotations

from dataclasses import dataclass

from busbar.errors import BusbarError
from busbar.expect.topology import Graph, gpu, narrowest_ring_path, node_graph, raw_rate
from busbar.site.family import LinkClass
from busbar.site.model import NodeType

RING, TREE, NVLS = "ring", "tree", "nvls"
ALGORITHMS = (RING, TREE, NVLS)


@dataclass(frozen=True)
class Bound:
    """The largest bus bandwidth that is possible, and what binds it."""

    gb_per_s: float
    path: tuple[str, ...]


@dataclass(frozen=True)
class _Inside:
    """Capacities inside a node, GB/s in one direction."""

    cut: float
    """The smallest sum of links between two halves of the ranks."""
    weakest: float
    """Links of the GPU that has the fewest."""
    mean: float
    """Links of a GPU on average."""
    neighbours: float
    """The narrowest way from a rank to the next."""


def factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it (its PERFORMANCE.md)."""
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
    """The bound for ``algo``; for None the largest over what these nodes can do.

    Raises ``BusbarError`` for an unknown algorithm, for NVLS without multicast, and for GPUs that
    no links join.
    """
    if algo not in (None, *ALGORITHMS):
        raise BusbarError(f"unknown algorithm {algo!r}", hint=f"known: {', '.join(ALGORITHMS)}")
    multicast = bool(node.gpus and node.gpus.multicast)
    if algo == NVLS and not multicast:
        raise BusbarError(
            "NVLS needs multicast in the switch, which these nodes do not have on",
            hint="set gpus.multicast in site.yaml if they do",
        )
    candidates = [algo] if algo else [RING, TREE, *([NVLS] if multicast else [])]
    inside = _inside(node, classes, ranks_per_node) if ranks_per_node > 1 else None
    bounds = [
        _bound(node, classes, collective, one, nodes, ranks_per_node, inside) for one in candidates
    ]
    return max(bounds, key=lambda found: found.gb_per_s)


def network(node: NodeType, classes: dict[str, LinkClass]) -> float:
    """GB/s in one direction through all NICs of a node. Raises ``BusbarError`` without NICs."""
    if not node.nics:
        raise BusbarError("its nodes state no NICs", hint="add nics to the node type")
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
            # The node's share of the work is done at the pace of its own links.
            value *= to_bus / factor(collective, per_node)
        terms.append((value, f"inside the node, {algo}"))
    if nodes > 1:
        rate = network(node, classes)
        value = rate
        if collective == "alltoall":
            value = rate * (ranks - 1) / (per_node * (ranks - per_node))
        elif algo != RING and collective in ("all_reduce", "all_gather", "reduce_scatter"):
            value = rate * nodes / (nodes - 1) * (ranks - 1) / ranks
        terms.append((value, f"{node.nic_count} NICs with {rate:g} GB/s a node, {algo}"))
    if not terms:
        raise BusbarError("one rank communicates with nobody", hint="ask for two ranks or more")
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
    # All data crosses every cut once each way; all GPUs together send it 2 (n - 1) times.
    return min(inside.mean, factor(collective, ranks) * inside.cut)


def _inside(node: NodeType, classes: dict[str, LinkClass], ranks: int) -> _Inside:
    if node.gpus is None or ranks > node.gpus.count:
        have = node.gpus.count if node.gpus else 0
        raise BusbarError(
            f"{ranks} ranks do not fit on {have} GPUs of a node",
            hint="ask for fewer, or more nodes",
        )
    import networkx as nx  # noqa: PLC0415 - takes longer to load than most commands need

    graph = _restricted(node_graph(node, classes), ranks)
    if not nx.is_connected(graph):
        raise BusbarError("no links join all GPUs of a node, so data passes through the host")
    cut, _ = nx.stoer_wagner(graph, weight="gb_per_s")
    degrees = [graph.degree(gpu(index), weight="gb_per_s") for index in range(ranks)]
    return _Inside(
        cut=float(cut),
        weakest=float(min(degrees)),
        mean=float(sum(degrees)) / ranks,
        neighbours=narrowest_ring_path(graph, ranks),
    )


def _restricted(graph: Graph, ranks: int) -> Graph:
    """Without the GPUs beyond ``ranks`` and the packages that hold none of the others.

    Libraries do not route through an idle accelerator, so a bound must not count on it.
    """
    used = {gpu(index) for index in range(ranks)}
    kept = graph.subgraph([n for n in graph if n in used or not n.startswith("gpu")]).copy()
    idle = [n for n in kept if n.startswith("package") and used.isdisjoint(kept[n])]
    kept.remove_nodes_from(idle)
    return kept
