# SPDX-License-Identifier: MIT
"""The links of a node as a graph, and paths through it.

Nodes whose GPUs share switches, such as a GB200 NVL72 rack, are one large node to collectives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache

from busbar.errors import BusbarError, require_known
from busbar.expect.graph import Graph, Hop, gpu
from busbar.site.family import LinkClass
from busbar.site.links import Bundle
from busbar.site.model import Nic, NodeType

SWITCH = "switch"
HOST = "host"
ON_HOST = (HOST, "socket", "pcie")
"""Prefixes of vertices that are not part of links between GPUs."""


def raw_rate(link_class: str, count: int, classes: dict[str, LinkClass]) -> float:
    """Return GB/s of parallel links in one direction; raise ``BusbarError`` if unknown."""
    require_known("unknown link class", link_class, sorted(classes))
    return count * classes[link_class].raw_gb_per_s


def node_graph(node: NodeType, classes: dict[str, LinkClass]) -> Graph:
    """Return the graph of GPUs, packages and switches.

    Raises ``BusbarError`` for a node without links or an unknown link class.
    """
    return _graph(node, tuple(classes.items()))


@lru_cache  # each pair of a matrix needs it
def _graph(node: NodeType, items: tuple[tuple[str, LinkClass], ...]) -> Graph:
    classes = dict(items)
    gpus = node.gpus
    if gpus is None or gpus.links is None:
        hint = "add gpus.links to the node type"
        raise BusbarError("the node type has no links between GPUs", hint=hint)
    links = gpus.links
    ends = [gpu(index) for index in range(gpus.count)]
    graph = Graph({end: {} for end in ends})

    def join(start: str, end: str, link_class: str, count: int) -> None:
        graph.join(Hop(start, end, link_class, count, raw_rate(link_class, count, classes)))
        if not classes[link_class].forwards:
            graph.ends.update({start, end}.intersection(ends))

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
        first, second = link.between
        join(ends[first], ends[second], link.link_class, link.count)
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
