# SPDX-License-Identifier: MIT
"""Nodes whose GPUs share switches, such as a GB200 NVL72 rack: one large node to collectives."""

from __future__ import annotations

from busbar.site.model import Nic, NodeType


def domain_nodes(node: NodeType) -> int:
    """Return the number of nodes whose GPUs the same switches connect."""
    links = node.gpus.links if node.gpus else None
    return links.switched.domain_nodes if links and links.switched else 1


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
