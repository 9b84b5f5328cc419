# SPDX-License-Identifier: MIT
"""``lstopo --of xml``."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

_OPENFABRICS = {"3", "OpenFabrics"}
_COPROCESSOR = {"5", "CoProc", "GPU"}


@dataclass(frozen=True)
class NumaNode:
    """One NUMA domain with its logical CPUs."""

    index: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """What hwloc sees."""

    packages: int
    cpus: tuple[int, ...]
    numa: tuple[NumaNode, ...]
    openfabrics: tuple[str, ...]
    """RDMA devices."""
    devices: tuple[str, ...]
    """GPUs that hwloc was built to see: ``cuda0``, ``rsmi0``..."""


def parse_machine(text: str) -> Machine:
    """Objects of hwloc's XML, version 1 or 2."""
    try:
        root = ET.fromstring(text)  # noqa: S314 - written by hwloc on this machine
    except ET.ParseError as error:
        raise ValueError(f"no XML: {error}") from error
    if root.tag != "topology":
        raise ValueError(f"the root is {root.tag}, not topology")
    objects = list(root.iter("object"))
    cpus = sorted(int(o.get("os_index", "-1")) for o in objects if o.get("type") == "PU")
    if not cpus or cpus[0] < 0:
        raise ValueError("no processing units")
    numa = [
        NumaNode(int(o.get("os_index", "0")), cpus_of_mask(o.get("cpuset", "0x0")))
        for o in objects
        if o.get("type") == "NUMANode"
    ]
    osdevs = [o for o in objects if o.get("type") == "OSDev"]
    return Machine(
        packages=sum(o.get("type") in ("Package", "Socket") for o in objects),
        cpus=tuple(cpus),
        numa=tuple(sorted(numa, key=lambda node: node.index)),
        openfabrics=_names(osdevs, _OPENFABRICS),
        devices=_names(osdevs, _COPROCESSOR),
    )


def cpus_of_mask(mask: str) -> tuple[int, ...]:
    """CPUs of hwloc's bitmap: 32-bit words, the highest first, as in ``0x00000001,0xffffffff``."""
    number = 0
    for word in mask.split(","):
        number = number << 32 | (int(word, 16) if word else 0)
    return tuple(bit for bit in range(number.bit_length()) if number >> bit & 1)


def _names(osdevs: list[ET.Element], kinds: set[str]) -> tuple[str, ...]:
    return tuple(sorted(o.get("name", "") for o in osdevs if o.get("osdev_type") in kinds))
