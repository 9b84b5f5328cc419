# SPDX-License-Identifier: MIT
"""The path between two GPUs: within a node, to its host, or through the fabric."""

from __future__ import annotations

from dataclasses import replace

from busbar.expect.expectation import NoExpectation
from busbar.expect.graph import Hop, Path, gpu, widest_path
from busbar.expect.topology import SWITCH, domain_nodes, node_graph, raw_rate
from busbar.site.family import LinkClass
from busbar.site.model import Gpus, Nic, NodeType, Site


def within_node(
    node: NodeType, classes: dict[str, LinkClass], src: int | None, dst: int | None
) -> Path:
    """Return the widest path between two GPUs of a node; without GPU links, through the host.

    Raises ``NoExpectation`` if both are the same GPU, if the node lacks one of them, or if the
    site states no path.
    """
    if src is None or dst is None or src == dst:
        raise NoExpectation(f"both ranks are on GPU {src}, so no link is used")
    graph = node_graph(node, classes)
    for index in (src, dst):  # a log can name any
        if gpu(index) not in graph.hops:
            raise NoExpectation(f"the nodes have no GPU {index}")
    plain = widest_path(graph, gpu(src), gpu(dst))
    if plain is None:
        if node.gpus is None or node.gpus.host_link is None:
            raise NoExpectation(
                f"no GPU links from GPU {src} to GPU {dst}, so data passes through the host"
            )
        there, back = (to_host(node.gpus, classes, index).hops for index in (src, dst))
        return Path((*there, *(hop.reversed for hop in back)))
    # The cost of a hop is one number per link class; all engines use the binding class.
    bands = classes[plain.binding.link_class].bands
    hop_share = min((band.hop_share for band in bands), default=1.0)
    return widest_path(graph, gpu(src), gpu(dst), hop_share) or plain


def pairs_limit(
    node: NodeType, classes: dict[str, LinkClass], pairs: int
) -> tuple[float, tuple[str, ...]]:
    """Return the GB/s of all links of the sending or the receiving GPUs, and which binds."""
    graph = node_graph(node, classes)
    sums = {
        side: sum(graph.rate(gpu(first + n)) for n in range(pairs))
        for side, first in (("sending", 0), ("receiving", pairs))
    }
    least = min(sums, key=lambda side: sums[side])
    return sums[least], (f"all links of the {least} GPUs: {sums[least]:g} GB/s",)


def to_host(gpus: Gpus, classes: dict[str, LinkClass], index: int | None) -> Path:
    """Return the path from a GPU to its host. Raises ``NoExpectation`` if it is unknown."""
    if gpus.host_link is None or index is None:
        raise NoExpectation("the site does not state the links between GPUs and host")
    link = gpus.host_link
    raw = raw_rate(link.link_class, link.count, classes)
    return Path((Hop(gpu(index), "host", link.link_class, link.count, raw),))


def between_nodes(
    site: Site, node: NodeType, classes: dict[str, LinkClass], src: int | None, dst: int | None
) -> Path:
    """Return the path from a GPU through its nearest NICs to a GPU of another node.

    None stands for all GPUs of a node. Nodes of one NVLink domain use its switches. Raises
    ``NoExpectation`` without a network.
    """
    switched = node.gpus.links.switched if node.gpus and node.gpus.links else None
    if switched and domain_nodes(node) > 1:
        gpus = node.gpus.count if node.gpus and src is None else 1
        name = gpu(src) if src is not None else "gpus"
        far = gpu(dst) if dst is not None else "gpus"
        raw = raw_rate(switched.link_class, switched.count * gpus, classes)
        hop = Hop(name, SWITCH, switched.link_class, switched.count * gpus, raw)
        return Path((hop, replace(hop, start=SWITCH, end=f"{far}'")))
    if not node.nics or site.fabric is None:
        raise NoExpectation("the site does not state a network between its nodes")
    hops: list[Hop] = []
    for side, index in (("", src), ("'", dst)):
        nics = _near(node, index)
        count = sum(nic.count for nic in nics)
        if index is not None:
            count = min(count, site.fabric.rails_per_pair)
        name = nics[0].name if len(nics) == 1 or index is not None else "nics"
        raw = raw_rate(nics[0].link_class, count, classes)
        end = ("gpus" if index is None else gpu(index)) if node.gpus else "host"
        port = Hop(f"{end}{side}", f"{name}{side}", nics[0].link_class, count, raw)
        half = [port]
        staged = not nics[0].gpudirect and node.gpus and node.gpus.host_link
        if staged:
            gpus = count if index is None else 1
            raw = raw_rate(staged.link_class, staged.count * gpus, classes)
            host = f"host{side}"
            half = [
                Hop(f"{end}{side}", host, staged.link_class, staged.count * gpus, raw),
                replace(port, start=host),
            ]
        hops += half if not side else [hop.reversed for hop in reversed(half)]
    return Path(tuple(hops))


def _near(node: NodeType, index: int | None) -> list[Nic]:
    """Return the NICs near a GPU; all NICs for None, or if the site does not say which."""
    return [nic for nic in node.nics if index in nic.near_gpus] or list(node.nics)
