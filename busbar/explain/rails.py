# SPDX-License-Identifier: MIT
"""Ring neighbours on different nodes, their NICs, and whether those are on one rail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.explain.timeline import owners_of
from busbar.parse import numbers
from busbar.site.model import NodeType

_LISTED = re.compile(r"\[(?P<index>\d{1,6})\](?P<nic>[^\s:]+)")


@dataclass(frozen=True)
class Crossing:
    """A pair of ranks on two nodes that are neighbours in a ring, sender first."""

    source: int
    target: int
    source_nic: str
    """Empty if neither the output nor the site shows it."""
    target_nic: str
    same_rail: bool | None
    """None if the NICs are not known."""
    evidence: Evidence

    @property
    def pair(self) -> str:
        """Return ``10-0``."""
        return f"{self.source}-{self.target}"

    @property
    def nics(self) -> str:
        """Return ``mlx5_0<->mlx5_2``, the same for both directions."""
        return "<->".join(sorted((self.source_nic, self.target_nic)))


_Nic: TypeAlias = tuple[str, int]
"""Name and rail."""


def crossings(facts: JobOutput, node: NodeType | None) -> list[Crossing]:
    """Return the pairs of ring neighbours on two nodes, in the order of the channels."""
    owners = owners_of(facts)
    where = {rank: (each.host, numbers.count(each.gpu)) for rank, each in owners.items()}
    ends = _named_ends(facts)
    listed = _listed_nics(facts)
    pairs: dict[tuple[int, int], Crossing] = {}
    for source, target, channel, evidence in _neighbours(facts):
        if (source, target) in pairs or source not in where or target not in where:
            continue
        (here, device), (there, other) = where[source], where[target]
        if here == there:
            continue
        # NCCL prints the NICs; otherwise the site lists the NICs near the GPUs.
        send, receive = ends.get((channel, source, target), (None, None))
        if send is not None and receive is not None:
            nics = _numbered_nic(node, send, listed), _numbered_nic(node, receive, listed)
        else:
            near, far = _near_nic(node, device), _near_nic(node, other)
            used = near and far and (not listed or {near[0], far[0]} <= {*listed.values()})
            nics = (near, far) if near and far and used else (("", 0), ("", 0))
        (first, rail), (second, other_rail) = nics
        same = rail == other_rail if first or second else None
        pairs[source, target] = Crossing(source, target, first, second, same, evidence)
    return list(pairs.values())


def _neighbours(facts: JobOutput) -> Iterator[tuple[int, int, int, Evidence]]:
    for channel, (ring, evidence) in sorted(facts.rings.items()):
        order = ring.ranks
        # The wrap-around comes first: it is the pair that closes the ring at rank 0.
        yield order[-1], order[0], channel, evidence
        for source, target in pairwise(order):
            yield source, target, channel, evidence
    for path, evidence in facts.paths.items():
        yield path.source, path.target, path.channel, evidence


def _named_ends(facts: JobOutput) -> dict[tuple[int, int, int], tuple[int | None, int | None]]:
    """Return NCCL's numbers of the NICs that send and receive, by channel and ranks."""
    ends: dict[tuple[int, int, int], tuple[int | None, int | None]] = {}
    for path in facts.paths:
        if path.network.startswith("Socket"):
            continue
        key = (path.channel, path.source, path.target)
        send, receive = ends.get(key, (None, None))
        ends[key] = (send, path.device) if path.receives else (path.device, receive)
    return ends


def _numbered_nic(node: NodeType | None, index: int, listed: dict[int, str]) -> _Nic:
    """Return the NIC with NCCL's number ``index``, by NCCL's own list or the site's order."""
    nics = node.nics if node else ()
    if index in listed:
        rails = {nic.name: at if nic.rail is None else nic.rail for at, nic in enumerate(nics)}
        return listed[index], rails.get(listed[index], index)
    return (nics[index].name if index < len(nics) else str(index)), index


def _listed_nics(facts: JobOutput) -> dict[int, str]:
    """Parse the NICs of ``NET/IB : Using [0]mlx5_0:1/RoCE ...``; empty if nodes differ."""
    lists = {seen["devices"].strip() for seen in facts.seen("nccl.ib-devices")}
    if len(lists) != 1:
        return {}
    return {numbers.count(nic["index"]): nic["nic"] for nic in _LISTED.finditer(lists.pop())}


def _near_nic(node: NodeType | None, device: int) -> _Nic | None:
    for index, nic in enumerate(node.nics if node else ()):
        if device in nic.near_gpus:
            return nic.name, nic.rail if nic.rail is not None else index
    return None
