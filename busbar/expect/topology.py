# SPDX-License-Identifier: MIT
"""The links of a node as a graph, and paths through it.

Nodes whose GPUs share switches, such as a GB200 NVL72 rack, are one large node to collectives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from busbar.errors import BusbarError
from busbar.site.family import LinkClass
from busbar.site.links import Bundle, PairLink
from busbar.site.model import Nic, NodeType

if TYPE_CHECKING:
    import networkx as nx

Graph: TypeAlias = "nx.Graph[str]"
SWITCH = "switch"
HOST = "host"
ON_HOST = (HOST, "socket", "pcie")
"""How the names of vertices begin that are no part of links between GPUs."""
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
        return sum(hop.end.startswith("gpu") for hop in self.hops[:-1])

    def describe(self) -> tuple[str, ...]:
        """Return the hops as text, the binding one marked."""
        return tuple(f"{hop} (binds)" if hop is self.binding else str(hop) for hop in self.hops)


def gpu(index: int) -> str:
    """Return the name of a GPU in the graph."""
    return f"{_GPU}{index}"


def raw_rate(link_class: str, count: int, classes: dict[str, LinkClass]) -> float:
    """Return GB/s of parallel links in one direction; raise ``BusbarError`` if unknown."""
    if link_class not in classes:
        raise BusbarError(
            f"unknown link class {link_class!r}", hint=f"known: {', '.join(sorted(classes))}"
        )
    return count * classes[link_class].raw_gb_per_s


def node_graph(node: NodeType, classes: dict[str, LinkClass]) -> Graph:
    """Return the graph of GPUs, packages and switches; edges have class, count and raw GB/s.

    Raises ``BusbarError`` for a node without links or an unknown link class.
    """
    import networkx as nx  # noqa: PLC0415 - takes longer to load than most commands need

    graph: Graph = nx.Graph(ends=set())  # GPUs that do not forward data
    gpus = node.gpus
    if gpus is None or gpus.links is None:
        raise BusbarError(
            "the node type has no links between GPUs", hint="add gpus.links to the node type"
        )
    links = gpus.links

    def join(start: str, end: str, link_class: str, count: int) -> None:
        raw = raw_rate(link_class, count, classes)
        graph.add_edge(start, end, link_class=link_class, count=count, gb_per_s=raw)
        if not classes[link_class].forwards:
            graph.graph["ends"] |= {end for end in (start, end) if end.startswith(_GPU)}

    graph.add_nodes_from(gpu(index) for index in range(gpus.count))
    ends = [gpu(index) for index in range(gpus.count)]
    if links.through_host:
        _join_host(node, join)
    if links.package:
        packages = [f"package{index}" for index in range(gpus.packages)]
        for index, end in enumerate(ends):
            join(end, packages[index // links.package.devices], links.package.link_class, 1)
        ends = packages
    if links.switched:
        for end in ends:
            join(end, SWITCH, links.switched.link_class, links.switched.count)
    for link in links.direct(len(ends)):
        first, second = _ends(link, ends)
        join(first, second, link.link_class, link.count)
    return graph


def _join_host(node: NodeType, join: Callable[[str, str, str, int], None]) -> None:
    """Join the GPUs by PCI Express; links of unknown rate carry what the GPUs below them do."""
    assert node.gpus
    link = node.gpus.host_link
    assert link

    def up(below: str, above: str, known: Bundle | None, gpus: int) -> None:
        bundle = known or Bundle(link_class=link.link_class, count=max(1, gpus * link.count))
        join(below, above, bundle.link_class, bundle.count)

    for index in () if node.pcie else range(node.gpus.count):
        up(gpu(index), HOST, link, 1)
    for number, socket in enumerate(node.pcie):
        for index in socket.gpus:
            up(gpu(index), f"socket{number}", link, 1)
        for at, switch in enumerate(socket.switches):
            for index in switch.gpus:
                up(gpu(index), f"pcie{number}.{at}", link, 1)
            up(f"pcie{number}.{at}", f"socket{number}", switch.uplink, len(switch.gpus))
        for other in range(number):
            up(f"socket{other}", f"socket{number}", socket.link, len(socket.all_gpus))


def _ends(link: PairLink, ends: list[str]) -> tuple[str, str]:
    first, second = link.between
    if max(first, second) >= len(ends):
        raise BusbarError(
            f"a link leads to GPU {max(first, second)}",
            hint=f"the node has GPUs 0 to {len(ends) - 1}",
        )
    return ends[first], ends[second]


def widest_path(graph: Graph, start: str, end: str, hop_share: float = 1) -> Path | None:
    """Return the direct links of two GPUs, else the path that carries most; None without a path.

    A path carries the rate of its narrowest link, times ``hop_share`` for each forwarding GPU.
    Among equals the shortest is chosen.
    """
    import networkx as nx  # noqa: PLC0415 - as above

    if graph.has_edge(start, end):
        return Path((Hop(start, end, **graph.edges[start, end]),))
    if graph.graph["ends"] - {start, end}:
        graph = graph.subgraph(set(graph) - graph.graph["ends"] | {start, end})
    best: tuple[float, Path] | None = None
    for width in sorted({data["gb_per_s"] for *_, data in graph.edges(data=True)}, reverse=True):
        wide = graph.edge_subgraph(
            [(a, b) for a, b, data in graph.edges(data=True) if data["gb_per_s"] >= width]
        )
        if start not in wide or end not in wide or not nx.has_path(wide, start, end):
            continue
        # The shortest path of at least this width; min() makes the choice among equals stable.
        nodes = min(nx.all_shortest_paths(wide, start, end))
        path = Path(tuple(Hop(a, b, **graph.edges[a, b]) for a, b in pairwise(nodes)))
        carried = path.gb_per_s * hop_share**path.forwarding_gpus
        if best is None or carried > best[0]:
            best = carried, path
    return best[1] if best else None


def narrowest_ring_path(graph: Graph, ranks: int) -> float:
    """Return GB/s of the narrowest path from a rank to the next, around the ring.

    Without a path a library may still forward the data itself, so the links of the GPU count.
    """
    rates = []
    for rank in range(ranks):
        path = widest_path(graph, gpu(rank), gpu((rank + 1) % ranks))
        rates.append(path.gb_per_s if path else graph.degree(gpu(rank), weight="gb_per_s"))
    return float(min(rates))


def domain_nodes(node: NodeType) -> int:
    """Return the number of nodes whose GPUs the same switches connect; any if it is unknown."""
    links = node.gpus.links if node.gpus else None
    return (links.switched.domain_nodes or sys.maxsize) if links and links.switched else 1


def joined(node: NodeType, nodes: int) -> tuple[NodeType, int]:
    """Return the nodes of one domain as one large node, and the number of domains.

    Nodes that do not fill their domains are distributed evenly.
    """
    size = domain_nodes(node)
    if nodes == 1 or size == 1 or node.gpus is None:
        return node, nodes
    domains = -(-nodes // size)
    members = -(-nodes // domains)
    gpus = node.gpus.count
    nics = tuple(_of_member(nic, index, gpus) for index in range(members) for nic in node.nics)
    large = node.gpus.model_copy(update={"count": gpus * members, "bus_ids": None})
    return node.model_copy(update={"gpus": large, "nics": nics}), domains


def _of_member(nic: Nic, index: int, gpus: int) -> Nic:
    near = tuple(gpu + index * gpus for gpu in nic.near_gpus)
    return nic.model_copy(update={"name": f"{nic.name}.{index}", "near_gpus": near})
