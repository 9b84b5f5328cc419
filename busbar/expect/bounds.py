# SPDX-License-Identifier: MIT
"""The physical limit of a collective per algorithm, as bus bandwidth of nccl-tests.

Within a node each ring crosses every cut of the links, so all rings together stay below the
smallest cut. Between N nodes with NICs of B in each direction, n ranks, g of them per node:

- ring: bus bandwidth <= B;
- any algorithm without reduction in the network: all-reduce moves at least half of its data in
  and half out, so its algorithm bandwidth <= B * N / (2 * (N - 1)) (NVIDIA/nccl issue 812 and
  NVIDIA/nccl-tests issue 196 report readings that only this bound explains);
- reduction in the network (SHARP of InfiniBand): a node sends its data once and receives the
  result once, so algorithm bandwidth <= B;
- sendrecv: only the last GPU of a node sends to the next one, by the NICs that it can use;
- k communicators at once: nccl-tests reports the average of their times (NVIDIA/nccl-tests issue
  234), which is least if they go one after the other, so the reading <= 2 / (k + 1) of the NICs.

Within a node NVLink SHARP reduces in the switch: each GPU sends its data once and the reduced
share once, so algorithm bandwidth <= B / (1 + 1/g).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from busbar.errors import BusbarError, require_known
from busbar.expect.graph import Graph, gpu, smallest_cut, widest_path
from busbar.expect.topology import ON_HOST, node_graph, raw_rate
from busbar.parse.tables import refused
from busbar.site.family import LinkClass
from busbar.site.model import NodeType

RING, TREE, NVLS = "ring", "tree", "nvls"
ALGORITHMS = (RING, TREE, NVLS)
_COLLNET = "reduction in the network"


@dataclass(frozen=True)
class Bound:
    """The largest possible bus bandwidth, and what limits it."""

    gb_per_s: float
    path: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """A collective on nodes with equally many ranks."""

    collective: str
    nodes: int
    per_node: int
    algo: str | None = None
    """None: whichever is the fastest."""
    rails: int = 1
    """NICs that a pair of ranks can use."""
    communicators: int = 1
    """Communicators on each node that run the collective at once."""

    @property
    def ranks(self) -> int:
        """Ranks of all nodes."""
        return self.nodes * self.per_node


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


def bound(node: NodeType, classes: dict[str, LinkClass], shape: Shape) -> Bound:
    """Return the bound of an algorithm; without one, the largest of those that the nodes support.

    Where the site does not say whether the switch has multicast, the bound allows for it. A pair
    of ranks uses ``rails`` NICs unless the nodes state which NICs are near. Raises
    ``BusbarError`` for an unknown algorithm, for NVLS without multicast, and for GPUs without
    links.
    """
    algo, nodes = shape.algo, shape.nodes
    if algo:
        require_known("unknown algorithm", algo, ALGORITHMS)
    multicast = bool(node.gpus and node.gpus.may_multicast)
    if algo == NVLS and not multicast:
        raise refused(__file__, "no-multicast")
    candidates = [algo] if algo else [RING, TREE, *([NVLS] if multicast else [])]
    if algo is None and nodes > 1 and network(node, classes):
        reduces = all(classes[nic.link_class].reduces for nic in node.nics)
        candidates += [_COLLNET] if reduces else []
    bounds = []
    for name in candidates:
        run = replace(shape, algo=name)
        terms = []
        if shape.per_node > 1:
            inside = replace(run, algo=NVLS if multicast else TREE) if name == _COLLNET else run
            terms.append((inside_bound(node, classes, inside), f"links between GPUs, {name}"))
        if nodes > 1:
            rate, value = network(node, classes), network_bound(node, classes, run)
            text = f"{node.nic_count} NICs, {rate:g} GB/s per node in all"
            terms.append((value, f"{text}, {name} x {value / rate:.4g}"))
        bounds.append(_least(terms))
    return max(bounds, key=lambda candidate: candidate.gb_per_s)


def _least(terms: list[tuple[float, str]]) -> Bound:
    if not terms:
        raise BusbarError("a collective needs at least two ranks", hint="increase the ranks")
    least = min(value for value, _ in terms)
    path = tuple(
        f"{text}: busbw <= {value:.4g} GB/s{' (binds)' if value == least else ''}"
        for value, text in terms
    )
    return Bound(least, path)


def network(node: NodeType, classes: dict[str, LinkClass]) -> float:
    """Return GB/s in one direction through all NICs. Raises ``BusbarError`` without NICs."""
    if not node.nics:
        raise BusbarError("the node type has no NICs", hint="add nics to the node type")
    return sum(raw_rate(nic.link_class, nic.count, classes) for nic in node.nics)


def inside_bound(node: NodeType, classes: dict[str, LinkClass], run: Shape) -> float:
    """Return the bound on bus bandwidth of the links within each node.

    Raises ``BusbarError`` for GPUs without links.
    """
    inside = _inside(node, tuple(classes.items()), run.per_node)
    value = _inside_bus(inside, run.collective, run.algo, run.per_node)
    if run.nodes > 1 and run.algo != RING:
        # Each node does its share of the work at its own link rate.
        value *= factor(run.collective, run.ranks) / factor(run.collective, run.per_node)
    return value


def network_bound(
    node: NodeType, classes: dict[str, LinkClass], run: Shape, *, near: bool = False
) -> float:
    """Return the bound on bus bandwidth of the NICs.

    ``near``: count only the NICs near a GPU that takes part, if the nodes state them, and let
    several communicators have equal shares of them.
    """
    nodes, ranks, algo, several = run.nodes, run.ranks, run.algo, run.communicators
    gpus = set(range(run.per_node * several))
    used = [nic for nic in node.nics if gpus.intersection(nic.near_gpus)]
    rate = network(
        node.model_copy(update={"nics": tuple(used)}) if near and used else node, classes
    )
    rate /= several if near else (several + 1) / 2
    if run.collective == "sendrecv":
        ends = [_of_one_gpu(node, classes, index, run) for index in (0, run.per_node - 1)]
        return min([*ends, rate] if several > 1 else ends)
    if run.collective == "alltoall":
        return rate * (ranks - 1) / (run.per_node * (ranks - run.per_node))
    if algo == _COLLNET and run.collective == "all_reduce":
        return rate * factor(run.collective, ranks)
    if algo != RING and run.collective in ("all_reduce", "all_gather", "reduce_scatter"):
        return rate * nodes / (nodes - 1) * (ranks - 1) / ranks
    return rate


def _of_one_gpu(node: NodeType, classes: dict[str, LinkClass], index: int, run: Shape) -> float:
    """Return the rate of the NICs near a GPU; as many as a pair can use if none is stated."""
    network(node, classes)
    near = [nic for nic in node.nics if index in nic.near_gpus]
    rates = [raw_rate(nic.link_class, 1, classes) for nic in node.nics for _ in range(nic.count)]
    of_rails = sum(sorted(rates, reverse=True)[: run.rails])
    return max(of_rails, sum(raw_rate(nic.link_class, nic.count, classes) for nic in near))


def _inside_bus(inside: _Inside, collective: str, algo: str | None, ranks: int) -> float:
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


@lru_cache  # each reading needs it
def _inside(node: NodeType, classes: tuple[tuple[str, LinkClass], ...], ranks: int) -> _Inside:
    if node.gpus is None or ranks > node.gpus.count:
        count = node.gpus.count if node.gpus else 0
        raise refused(__file__, "many-ranks", ranks=ranks, count=count)
    links = node.gpus.links
    if links and links.switched and not links.package:
        # A star: each cut, each GPU and each path has the links of one GPU.
        rate = raw_rate(links.switched.link_class, links.switched.count, dict(classes))
        return _Inside(cut=rate, weakest=rate, mean=rate, neighbours=rate)
    graph = _restricted(node_graph(node, dict(classes)), ranks)
    direct = graph.without([name for name in graph.hops if name.startswith(ON_HOST)])
    if cut := smallest_cut(direct):
        graph = direct
    elif not (cut := smallest_cut(graph)):
        raise refused(__file__, "not-connected")
    rates = [graph.rate(gpu(index)) for index in range(ranks)]
    # Without a path a library may still forward the data itself, so the links of the GPU count.
    around = (widest_path(graph, gpu(n), gpu((n + 1) % ranks)) for n in range(ranks))
    neighbours = min(path.gb_per_s if path else rates[n] for n, path in enumerate(around))
    return _Inside(cut, min(rates), sum(rates) / ranks, neighbours)


def _restricted(graph: Graph, ranks: int) -> Graph:
    """Remove the GPUs without a rank, and the packages without a used GPU.

    Libraries do not route through an idle accelerator, so the bound excludes it.
    """
    used = {gpu(index) for index in range(ranks)}
    kept = graph.without([n for n in graph.hops if n.startswith("gpu") and n not in used])
    hops = kept.hops
    kept = kept.without([n for n in hops if n.startswith("package") and used.isdisjoint(hops[n])])
    while ends := [n for n in kept.hops if n.startswith(ON_HOST) and len(kept.hops[n]) <= 1]:
        kept = kept.without(ends)
    return kept
