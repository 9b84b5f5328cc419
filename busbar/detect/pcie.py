# SPDX-License-Identifier: MIT
"""Where GPUs without links of their own are on PCI Express."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from busbar.detect.detected import remark
from busbar.detect.nvidia import places
from busbar.detect.pci import Place
from busbar.detect.reader import Reader
from busbar.gate.sysfs import short_address
from busbar.parse.machine.hwloc import Machine
from busbar.parse.machine.nvidia_smi import Topology
from busbar.words import grouped

_SEVERAL = 2
"""Devices that share something; root complex and root port in front of the path of a device."""


def pcie(
    reader: Reader, topology: Topology | None, facts: dict[str, Any], machine: Machine | None
) -> list[dict[str, Any]]:
    """Return where GPUs without links of their own are: by `/sys`, hwloc or the matrix."""
    gpus = facts.get("gpus", {})
    if not (gpus.get("links") or {}).get("through_host"):
        return []
    known = {
        address: Place(path, package)
        for address, (path, package) in (machine.places if machine else {}).items()
    } | reader.outputs.places
    found = [known.get(short_address(address)) for address in gpus.get("bus_ids", ())]
    if found and None not in found:
        names = {nic["name"] for nic in facts.get("nics", ())}
        nics = {name: place for name, place in known.items() if name in names}
        placed = sockets([place for place in found if place], nics)
    else:
        placed = sockets(places(topology)) if topology else []
    if placed:
        reader.remarks.append(remark("uplinks"))
    return placed


def sockets(
    gpus: Sequence[Place], nics: Mapping[str, Place] | None = None
) -> list[dict[str, Any]]:
    """Return the key ``pcie`` of a node type: the devices below each switch and socket.

    Devices that share a bridge below a root complex have a switch above them. Rates of uplinks and
    of links between sockets are not shown. Empty if there are fewer than two GPUs, or the place of
    one is unknown.
    """
    if len(gpus) < _SEVERAL or any(gpu.numa < 0 for gpu in gpus):
        return []
    found = []
    for numa in sorted({gpu.numa for gpu in gpus}):
        near = ((gpu.path[:_SEVERAL], n) for n, gpu in enumerate(gpus) if gpu.numa == numa)
        socket: dict[str, Any] = {}
        for path, members in grouped(near).items():
            ports = [name for name, nic in (nics or {}).items() if nic.path[:_SEVERAL] == path]
            if len(members) + len(ports) < _SEVERAL:
                socket.setdefault("gpus", []).extend(members)
                continue
            switch = {"gpus": members} | ({"nics": ports} if ports else {})
            socket.setdefault("switches", []).append(switch)
        found.append(socket)
    return found
