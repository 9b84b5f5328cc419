# SPDX-License-Identifier: MIT
"""The differences between a detected machine and a site, in what can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busbar.detect.detected import Detected
from busbar.site.model import Gpus, NodeType, Site

_MARKS = ("gpus.vendor", "gpus.model", "gpus.arch", "gpus.count", "gpus.links", "nics", "instance")


@dataclass(frozen=True)
class SiteDifference:
    """One fact that the machine shows and the site states otherwise."""

    key: str
    detected: Any
    stated: Any

    @property
    def marks_the_system(self) -> bool:
        """Whether it makes the machine another system, and not just another slice of it."""
        return self.key.startswith(_MARKS)

    def __str__(self) -> str:
        return f"{self.key}: the machine has {self.detected}, the site states {self.stated}"


def differences(
    detected: Detected, known: Site, partition: str | None = None
) -> list[SiteDifference]:
    """Facts that both tell, and tell differently; what one leaves open is no difference."""
    seen, stated = detected.site.node_type(), known.node_type(partition)
    pairs = _gpus(seen, stated)
    pairs += [("cores", seen.cores, stated.cores)]
    pairs += [("instance_type", seen.instance_type, stated.instance_type)]
    pairs += [("numa", _numa(seen), _numa(stated))]
    if detected.rdma_seen:
        pairs += [("nics", _nics(seen), _nics(stated))]
    if _near(seen) and _near(stated):
        pairs += [("nics.near_gpus", _near(seen), _near(stated))]
    return [
        SiteDifference(key, one, other)
        for key, one, other in pairs
        if one is not None and other is not None and one != other
    ]


def _gpus(seen: NodeType, stated: NodeType) -> list[tuple[str, Any, Any]]:
    if seen.gpus is None or stated.gpus is None:
        counts = [node.gpus.count if node.gpus else 0 for node in (seen, stated)]
        return [("gpus.count", counts[0], counts[1])]
    keys = ("vendor", "model", "arch", "count", "memory_mib", "bus_ids")
    pairs = [(f"gpus.{k}", getattr(seen.gpus, k), getattr(stated.gpus, k)) for k in keys]
    hosts = [g.host_link.link_class if g.host_link else None for g in (seen.gpus, stated.gpus)]
    pairs.append(("gpus.host_link", hosts[0], hosts[1]))
    pairs.append(("gpus.links", _links(seen.gpus), _links(stated.gpus)))
    modes = [
        g.partitioning.model_dump() if g.partitioning else None for g in (seen.gpus, stated.gpus)
    ]
    return [*pairs, ("gpus.partitioning", modes[0], modes[1])]


def _links(gpus: Gpus) -> dict[str, Any] | None:
    if gpus.links is None:
        return None
    # Compared pair by pair, so that two ways to write the same links are one.
    switched = gpus.links.switched
    pairs = {
        tuple(sorted(p.between)): (p.link_class, p.count) for p in gpus.links.direct(gpus.packages)
    }
    found: dict[str, Any] = {f"{a}-{b}": f"{n} x {c}" for (a, b), (c, n) in sorted(pairs.items())}
    if switched:
        found["switch"] = f"{switched.count} x {switched.link_class}"
    return found


def _numa(node: NodeType) -> list[tuple[int, str, tuple[int, ...]]] | None:
    return [(numa.id, numa.cpus, numa.gpus) for numa in node.numa] or None


def _nics(node: NodeType) -> dict[str, int]:
    """Ports by class; names differ between machines of one kind."""
    counts: dict[str, int] = {}
    for nic in node.nics:
        counts[nic.link_class] = counts.get(nic.link_class, 0) + nic.count
    return counts


def _near(node: NodeType) -> list[tuple[int, ...]] | None:
    near = sorted(nic.near_gpus for nic in node.nics for _ in range(nic.count))
    return near if any(near) else None
