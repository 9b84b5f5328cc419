# SPDX-License-Identifier: MIT
"""What the kernel shows of a node in `/sys`: GPUs, ports, CPUs and drivers, without any tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from busbar.parse import numbers
from busbar.parse.cpulist import parse_cpu_list

_VGA = 0x0300
_CLASSES = {
    "nvidia": (0x0302,),  # 3D controller: all data center GPUs without a display
    "amd": (0x0302, 0x0380, 0x1200),  # Instinct: display controller, processing accelerator
}
_VENDORS = {0x10DE: "nvidia", 0x1002: "amd"}
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""The generation of PCI Express by its GT/s."""
DOWN = "link_downed"
_COUNTERS = (DOWN, "symbol_error", "link_error_recovery", "port_rcv_errors")
"""Counters of an RDMA port that the gate shows; a sweep reads more."""


@dataclass(frozen=True)
class PciGpu:
    """A GPU for computing on the PCI bus; None for what the kernel does not show."""

    vendor: str
    """``nvidia`` or ``amd``."""
    address: str
    """``0000:3b:00.0``; a device file if the bus is not visible."""
    device: str = ""
    """The device id of the vendor: ``2330``."""
    width: tuple[int, int] | None = None
    """Lanes, now and at most."""
    generation: tuple[int, int] | None = None
    """Of PCI Express, now and at most."""
    percent: float | None = None
    """Utilization (AMD)."""
    uncorrectable: int | None = None
    """Uncorrectable errors that the driver has counted (AMD)."""
    driven: bool = True
    """Whether a driver is bound to it (AMD)."""


@dataclass(frozen=True)
class PortState:
    """A network port: one of an RDMA device, or a network interface."""

    name: str
    active: bool
    state: str
    """In the kernel's words."""
    gbit_per_s: float | None
    counters: tuple[tuple[str, int], ...] = ()
    """Errors since the counters were reset, by name; only those above zero."""
    rdma: bool = False


@dataclass(frozen=True)
class Sysfs:
    """The facts of one node."""

    cpus: int | None
    gpus: tuple[PciGpu, ...]
    ports: tuple[PortState, ...]
    drivers: tuple[tuple[str, str], ...]
    """Module and version."""
    kfd_pids: tuple[int, ...] = ()
    """Programs that use GPUs of AMD."""


def read(root: Path = Path("/")) -> Sysfs:
    """Read the facts; ``root`` is the directory that contains `sys` and `dev`."""
    drivers = [
        (name, text_in(root / f"sys/module/{name}/version")) for name in ("nvidia", "amdgpu")
    ]
    return Sysfs(
        cpus=_cpus(root),
        gpus=tuple(_state(root, gpu) for gpu in compute_gpus(root)),
        ports=(*rdma_ports(root), *interfaces(root)),
        drivers=tuple((name, version) for name, version in drivers if version),
        kfd_pids=kfd_pids(root),
    )


def kfd_pids(root: Path = Path("/")) -> tuple[int, ...]:
    """Return the programs that use GPUs of AMD."""
    names = [path.name for path in root.glob("sys/class/kfd/kfd/proc/*")]
    return tuple(sorted(numbers.count(name) for name in names if numbers.is_whole(name)))


def _cpus(root: Path) -> int | None:
    with suppress(ValueError):  # offline or no sysfs: unknown
        return len(parse_cpu_list(text_in(root / "sys/devices/system/cpu/online"))) or None
    return None


def _state(root: Path, gpu: PciGpu) -> PciGpu:
    device = root / "sys/bus/pci/devices" / gpu.address
    ras = [_errors(text_in(file)) for file in device.glob("ras/*_err_count")]
    counted = [count for count in ras if count is not None]
    return replace(
        gpu,
        width=_both(device, "link_width", lambda text: numbers.whole(text) or 0),
        generation=_both(device, "link_speed", _generation),
        percent=numbers.real(text_in(device / "gpu_busy_percent")),
        uncorrectable=sum(counted) if counted else None,
    )


def _both(device: Path, what: str, read_value: Callable[[str], int]) -> tuple[int, int] | None:
    now, most = (read_value(text_in(device / f"{kind}_{what}")) for kind in ("current", "max"))
    return (now, most) if now and most else None


def slot_gb_per_s(device: Path) -> float:
    """Return the rate of a device's PCIe slot in one direction; 0 if it is unknown."""
    lanes = numbers.whole(text_in(device / "current_link_width")) or 0
    rate = numbers.real(text_in(device / "current_link_speed").partition(" ")[0]) or 0.0
    return lanes * rate * (128 / 130 if rate >= 8 else 0.8) / 8


def _generation(text: str) -> int:
    rate = numbers.real(text.partition(" ")[0])
    return _GENERATIONS.get(rate, 0) if rate else 0


def _errors(text: str) -> int | None:
    """Return the uncorrectable errors of a RAS file: ``ue: 0`` and ``ce: 0``."""
    count = re.search(r"^ue: (?P<count>\d+)", text, re.MULTILINE)
    return numbers.count(count["count"]) if count else None


def rdma_ports(root: Path = Path("/")) -> Iterator[PortState]:
    """Yield the ports of InfiniBand, RoCE and EFA."""
    for directory in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        device, number = directory.parts[-3], directory.parts[-1]
        state = text_in(directory / "state").partition(": ")[2] or "unknown"
        physical = text_in(directory / "phys_state").partition(": ")[2]
        counts = (
            (name, numbers.whole(text_in(directory / "counters" / name))) for name in _COUNTERS
        )
        yield PortState(
            device if number == "1" else f"{device}/{number}",
            active=state == "ACTIVE",
            state=f"{state} ({physical})" if physical else state,
            gbit_per_s=numbers.real(text_in(directory / "rate").partition(" ")[0]),
            counters=tuple((name, count) for name, count in counts if count),
            rdma=True,
        )


def interfaces(root: Path = Path("/")) -> Iterator[PortState]:
    """Yield the network interfaces, including Slingshot's."""
    for directory in sorted(root.glob("sys/class/net/*")):
        if directory.name == "lo" or not directory.is_dir():
            continue
        state = text_in(directory / "operstate") or "unknown"
        # A tunnel or a dummy has no operational state; its carrier is enough.
        carrier = text_in(directory / "carrier") == "1"
        speed = numbers.real(text_in(directory / "speed"))
        downs = numbers.whole(text_in(directory / "carrier_down_count"))
        yield PortState(
            directory.name,
            active=state == "up" or (state == "unknown" and carrier),
            state=state,
            gbit_per_s=speed / 1000 if speed and speed > 0 else None,
            counters=((DOWN, downs),) if downs else (),
        )


def text_in(path: Path) -> str:
    """Return the content of a file; empty if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def short_address(address: str) -> str:
    """Return a PCI address as the kernel writes it: ``0000:3b:00.0``."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def compute_gpus(root: Path = Path("/")) -> tuple[PciGpu, ...]:
    """Return the GPUs for computing; ``root`` is the directory that contains `sys` and `dev`.

    A VGA controller is usually a display: a management controller, the GPU inside a CPU, a
    graphics card. It counts only if it is not the console and has the driver of NVIDIA; AMD's
    driver is the same for displays. A GPU that is handed on to a virtual machine does not count.
    """
    listed = [
        (path, vendor)
        for path in sorted(root.glob("sys/bus/pci/devices/*"))
        if (vendor := _VENDORS.get(number_in(path / "vendor")))
    ]
    gpus = tuple(
        PciGpu(
            *(vendor, path.name, f"{number_in(path / 'device'):04x}"),
            driven=vendor != "amd" or (path / "driver").is_symlink(),
        )
        for path, vendor in listed
        if _computes(path, vendor)
    )
    if any(vendor == "nvidia" for _, vendor in listed):
        return gpus
    # A sandbox may show the device files, but not the bus.
    files = sorted(root.glob("dev/nvidia[0-9]*"))
    return (*gpus, *(PciGpu("nvidia", f"/dev/{path.name}") for path in files))


def _computes(path: Path, vendor: str) -> bool:
    driver = ""
    with suppress(OSError):  # no driver is bound
        driver = (path / "driver").readlink().name
    if driver in ("vfio-pci", "pci-stub"):
        return False
    kind = number_in(path / "class") >> 8
    if kind == _VGA:
        return vendor == "nvidia" and driver == "nvidia" and number_in(path / "boot_vga") != 1
    return kind in _CLASSES[vendor]


def number_in(path: Path) -> int:
    """Return the number in a sysfs file, or -1."""
    try:
        return int(path.read_text(), 0)
    except (OSError, ValueError):
        return -1
