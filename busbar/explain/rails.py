# SPDX-License-Identifier: MIT
"""Ring neighbours on different nodes, their NICs, and whether those are on one rail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
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


@dataclass(frozen=True)
class _Place:
    host: str
    device: int


def places(facts: JobOutput) -> dict[int, _Place]:
    """Return host and local device of each rank, by the device list or NCCL's own lines."""
    listed = {d.rank: _Place(d.host, d.device) for d in facts.devices.values()}
    if listed:
        return listed
    for seen in facts.seen("nccl.init"):
        if numbers.is_whole(seen["device"]):
            host = seen.evidence.text.split(":", 1)[0].rsplit(" ", 1)[-1]
            listed[numbers.count(seen["rank"])] = _Place(host, numbers.count(seen["device"]))
    return listed


def crossings(facts: JobOutput, node: NodeType | None) -> list[Crossing]:
    """Return the pairs of ring neighbours on two nodes, in the order of the channels."""
    where = places(facts)
    ends = _named_ends(facts)
    listed = _listed_nics(facts)
    pairs: dict[tuple[int, int], Crossing] = {}
    for source, target, channel, evidence in _neighbours(facts):
        if (source, target) in pairs or source not in where or target not in where:
            continue
        if where[source].host == where[target].host:
            continue
        ranks = (where[source], where[target])
        nics = _nics(ends.get((channel, source, target), (None, None)), ranks, node, listed)
        if nics is None:
            pairs[source, target] = Crossing(source, target, "", "", None, evidence)
            continue
        (first, first_rail), (second, second_rail) = nics
        same = first_rail == second_rail
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


_Ends = dict[tuple[int, int, int], tuple[int | None, int | None]]


def _named_ends(facts: JobOutput) -> _Ends:
    ends: _Ends = {}
    for path in facts.paths:
        if path.network.startswith("Socket"):
            continue
        key = (path.channel, path.source, path.target)
        send, receive = ends.get(key, (None, None))
        ends[key] = (send, path.device) if path.receives else (path.device, receive)
    return ends


_Nic = tuple[str, int]
"""Name and rail."""


def _nics(
    ends: tuple[int | None, int | None],
    pair: tuple[_Place, _Place],
    node: NodeType | None,
    listed: dict[int, str],
) -> tuple[_Nic, _Nic] | None:
    """Return the NICs that NCCL prints, or else those near the GPUs by the site."""
    send, receive = ends
    if send is not None and receive is not None:
        return _numbered_nic(node, send, listed), _numbered_nic(node, receive, listed)
    first, second = (_near_nic(node, place.device) for place in pair)
    return (first, second) if first and second else None


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
