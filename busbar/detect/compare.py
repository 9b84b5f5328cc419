# SPDX-License-Identifier: MIT
"""Compare a detected machine with a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busbar.detect.detected import Detected
from busbar.site.model import Gpus, NodeType, Site

MARKS = ("gpus.vendor", "gpus.model", "gpus.arch", "gpus.count", "gpus.links", "nics", "instance")


@dataclass(frozen=True)
class SiteDifference:
    """One fact that differs between the machine and the site."""

    key: str
    detected: Any
    stated: Any

    def __str__(self) -> str:
        return f"{self.key}: the machine has {self.detected}, the site states {self.stated}"


_ETHERNET = "eth-"


def differences(
    detected: Detected, site: Site, partition: str | None = None
) -> list[SiteDifference]:
    """Return the facts that both state differently; a fact that one omits is not compared."""
    machine, stated = detected.site.node_type(), site.node_type(partition)
    pairs = _gpus(machine, stated)
    pairs += [("cores", machine.cores, stated.cores)]
    pairs += [("instance_type", machine.instance_type, stated.instance_type)]
    pairs += [("numa", _numa(machine), _numa(stated))]
    if detected.rdma_listed:
        nics = _nics(stated)
        ethernet = any(name.startswith(_ETHERNET) for name in nics)
        pairs += [("nics", _nics(machine, ethernet=ethernet), nics)]
    if _near(machine) and _near(stated):
        pairs += [("nics.near_gpus", _near(machine), _near(stated))]
    return [
        SiteDifference(key, one, other)
        for key, one, other in pairs
        if one is not None and other is not None and one != other
    ]


def _gpus(machine: NodeType, stated: NodeType) -> list[tuple[str, Any, Any]]:
    one, other = machine.gpus, stated.gpus
    if one is None or other is None:
        return [("gpus.count", one.count if one else 0, other.count if other else 0)]
    keys = ("vendor", "model", "arch", "count", "memory_mib", "bus_ids")
    return [
        *((f"gpus.{key}", getattr(one, key), getattr(other, key)) for key in keys),
        ("gpus.host_link", _host_link(one), _host_link(other)),
        ("gpus.links", _links(one), _links(other)),
        ("gpus.partitioning", _partitioning(one), _partitioning(other)),
    ]


def _host_link(gpus: Gpus) -> str | None:
    return gpus.host_link.link_class if gpus.host_link else None


def _partitioning(gpus: Gpus) -> dict[str, Any] | None:
    return gpus.partitioning.model_dump() if gpus.partitioning else None


def _links(gpus: Gpus) -> dict[str, Any] | None:
    if gpus.links is None:
        return None
    # Compare pair by pair, so that the form in which links are written does not matter.
    switched = gpus.links.switched
    pairs = {
        tuple(sorted(p.between)): (p.link_class, p.count) for p in gpus.links.direct(gpus.packages)
    }
    links: dict[str, Any] = {f"{a}-{b}": f"{n} x {c}" for (a, b), (c, n) in sorted(pairs.items())}
    if switched:
        links["switch"] = f"{switched.count} x {switched.link_class}"
    return links


def _numa(node: NodeType) -> list[tuple[int, str, tuple[int, ...]]] | None:
    return [(numa.id, numa.cpus, numa.gpus) for numa in node.numa] or None


def _nics(node: NodeType, *, ethernet: bool = True) -> dict[str, int]:
    """Count the ports by class; names differ between machines of one type.

    Every machine has some Ethernet, which few sites state.
    """
    counts: dict[str, int] = {}
    for nic in node.nics:
        if not ethernet and nic.link_class.startswith(_ETHERNET):
            continue
        counts[nic.link_class] = counts.get(nic.link_class, 0) + nic.count
    return counts


def _near(node: NodeType) -> list[tuple[int, ...]] | None:
    near = sorted(nic.near_gpus for nic in node.nics for _ in range(nic.count))
    return near if any(near) else None
