# SPDX-License-Identifier: MIT
"""The GPUs that the kernel lists on the PCI bus, also without a driver or a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_VGA = 0x0300
_CLASSES = {
    "nvidia": (0x0302,),  # 3D controller: all data center GPUs without a display
    "amd": (0x0302, 0x0380, 0x1200),  # Instinct: display controller, processing accelerator
}
_VENDORS = {0x10DE: "nvidia", 0x1002: "amd"}
TOOLS = {"nvidia": ("nvidia-smi",), "amd": ("amd-smi", "rocm-smi")}
"""The tools of each vendor that detect GPUs; one of them is enough."""
_PACKAGES = {"nvidia": "the NVIDIA driver with nvidia-smi", "amd": "ROCm with amd-smi or rocm-smi"}
_NAMES = {"nvidia": "NVIDIA", "amd": "AMD"}


@dataclass(frozen=True)
class PciGpu:
    """A GPU for computing."""

    vendor: str
    """``nvidia`` or ``amd``."""
    address: str
    """``0000:3b:00.0``; a device file if the bus is not visible."""
    device: str = ""
    """The device id of the vendor: ``2330``."""


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
    return Place(path, _number(real / "numa_node"))


def short_address(address: str) -> str:
    """Return a PCI address as the kernel writes it: ``0000:3b:00.0``."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def nearest(
    device: Place, addresses: Sequence[str], places: Mapping[str, Place]
) -> tuple[int, ...]:
    """Return the GPUs that share most bridges with a device; without any, its NUMA domain.

    ``addresses`` are those of the GPUs, in device order.
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
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def compute_gpus(root: Path = Path("/")) -> tuple[PciGpu, ...]:
    """Return the GPUs for computing; ``root`` is the directory that contains `sys` and `dev`.

    A VGA controller is usually a display: a management controller, the GPU inside a CPU, a
    graphics card. It counts only if it is not the console and has the driver of NVIDIA; AMD's
    driver is the same for displays. A GPU that is handed on to a virtual machine does not count.
    """
    listed = [
        (path, vendor)
        for path in sorted(root.glob("sys/bus/pci/devices/*"))
        if (vendor := _VENDORS.get(_number(path / "vendor")))
    ]
    gpus = tuple(
        PciGpu(vendor, path.name, f"{_number(path / 'device'):04x}")
        for path, vendor in listed
        if _computes(path, vendor)
    )
    if any(vendor == "nvidia" for _, vendor in listed):
        return gpus
    # A sandbox may show the device files, but not the bus.
    files = sorted(root.glob("dev/nvidia[0-9]*"))
    return (*gpus, *(PciGpu("nvidia", f"/dev/{path.name}") for path in files))


def without_tool(gpus: tuple[PciGpu, ...], installed: frozenset[str]) -> list[str]:
    """Return one sentence for each vendor whose GPUs no installed tool can describe."""
    sentences = []
    for vendor, tools in TOOLS.items():
        mine = [gpu for gpu in gpus if gpu.vendor == vendor]
        if mine and installed.isdisjoint(tools):
            first = mine[0]
            name = f"{first.address} (device {first.device})" if first.device else first.address
            more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
            sentences.append(
                f"{_NAMES[vendor]} GPU {name}{more}: {' and '.join(tools)} not found on PATH,"
                f" install {_PACKAGES[vendor]}"
            )
    return sentences


def _computes(path: Path, vendor: str) -> bool:
    driver = ""
    with suppress(OSError):
        driver = (path / "driver").readlink().name
    if driver in ("vfio-pci", "pci-stub"):
        return False
    kind = _number(path / "class") >> 8
    if kind == _VGA:
        return vendor == "nvidia" and driver == "nvidia" and _number(path / "boot_vga") != 1
    return kind in _CLASSES[vendor]


def _number(path: Path) -> int:
    """Return the number in a file of sysfs; -1 if there is none."""
    try:
        return int(path.read_text(), 0)
    except (OSError, ValueError):
        return -1
