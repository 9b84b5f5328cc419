# SPDX-License-Identifier: MIT
"""Parse ``lstopo --of xml``."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from busbar.parse import numbers


@dataclass(frozen=True)
class NumaNode:
    """One NUMA domain with its logical CPUs."""

    index: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Machine:
    """The machine as hwloc detects it."""

    cpus: tuple[int, ...]
    numa: tuple[NumaNode, ...]
    places: Mapping[str, tuple[tuple[str, ...], int]]
    """By PCI address: the bridges from the root complex to the device, itself, and its package."""


def parse_machine(text: str) -> Machine:
    """Parse hwloc's XML, version 1 or 2."""
    try:
        root = ET.fromstring(text)  # noqa: S314 - written by hwloc on this machine
    except ET.ParseError as error:
        raise ValueError(f"invalid XML: {error}") from error
    if root.tag != "topology":
        raise ValueError(f"root element {root.tag} instead of topology")
    objects = list(root.iter("object"))
    cpus = sorted(numbers.count(o.get("os_index", "-1")) for o in objects if o.get("type") == "PU")
    if not cpus or cpus[0] < 0:
        raise ValueError("no processing units")
    numa = [
        NumaNode(numbers.count(o.get("os_index", "0")), cpus_of_mask(o.get("cpuset", "0x0")))
        for o in objects
        if o.get("type") == "NUMANode"
    ]
    places = {address: (path, package) for address, path, package in _places(root, (), -1)}
    return Machine(tuple(cpus), tuple(sorted(numa, key=lambda node: node.index)), places)


def _places(
    above: ET.Element, path: tuple[str, ...], package: int
) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """Yield address, bridges and package of each device below an object."""
    for number, child in enumerate(above.findall("object")):
        kind, address = child.get("type"), child.get("pci_busid", "")
        own = numbers.count(child.get("os_index", "0")) if kind == "Package" else package
        bridges = (*path, address or f"root {number}") if kind == "Bridge" else path
        if kind == "PCIDev" and address:
            yield address.lower(), (*path, address), own
        yield from _places(child, bridges, own)


def cpus_of_mask(mask: str) -> tuple[int, ...]:
    """Return the CPUs of hwloc's bitmap: 32-bit words, highest first (``0x00000001,0xff``)."""
    number = 0
    for word in mask.split(","):
        number = number << 32 | (int(word, 16) if word else 0)
    return tuple(bit for bit in range(number.bit_length()) if number >> bit & 1)
