# SPDX-License-Identifier: MIT
"""Where devices are on the PCI bus, and which tools describe its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from busbar.detect.detected import remark
from busbar.gate.sysfs import PciGpu, number_in, short_address

TOOLS = {"nvidia": ("nvidia-smi",), "amd": ("amd-smi", "rocm-smi")}
"""The tools of each vendor that detect GPUs; one of them is enough."""
_PACKAGES = {"nvidia": "the NVIDIA driver with nvidia-smi", "amd": "ROCm with amd-smi or rocm-smi"}
_NAMES = {"nvidia": "NVIDIA", "amd": "AMD"}


@dataclass(frozen=True)
class Place:
    """Where a device is on the PCI bus."""

    path: tuple[str, ...]
    """The bridges above it, from the root complex on, and its own address."""
    numa: int
    """NUMA domain; -1 if the kernel does not know it."""


def place(device: Path) -> Place:
    """Return the place of a device of sysfs, given by any of its links."""
    real = device.resolve()
    path = real.parts[next((i for i, p in enumerate(real.parts) if p.startswith("pci")), 0) :]
    return Place(path, number_in(real / "numa_node"))


def nearest(
    device: Place, addresses: Sequence[str], places: Mapping[str, Place]
) -> tuple[int, ...]:
    """Return the GPUs that share most bridges with a device; without any, its NUMA domain.

    ``addresses`` are the addresses of the GPUs, in device order.
    """
    gpus = [places.get(short_address(address)) for address in addresses]
    shared = [_shared(device.path, gpu.path) if gpu else 0 for gpu in gpus]
    most = max(shared, default=0)
    if most:
        return tuple(index for index, count in enumerate(shared) if count == most)
    return tuple(
        index
        for index, gpu in enumerate(gpus)
        if gpu and gpu.numa == device.numa and gpu.numa >= 0
    )


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def without_tool(gpus: tuple[PciGpu, ...], installed: frozenset[str]) -> Iterator[str]:
    """Yield one sentence for each vendor whose GPUs no installed tool can describe."""
    for vendor, tools in TOOLS.items():
        mine = [gpu for gpu in gpus if gpu.vendor == vendor]
        if mine and installed.isdisjoint(tools):
            first = mine[0]
            name = f"{first.address} (device {first.device})" if first.device else first.address
            more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
            words = {"tools": " and ".join(tools), "package": _PACKAGES[vendor]}
            yield remark("no-tool", vendor=_NAMES[vendor], name=name, more=more, **words)
