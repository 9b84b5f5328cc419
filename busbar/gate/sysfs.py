# SPDX-License-Identifier: MIT
"""What the kernel shows of a node in `/sys`: GPUs, ports, CPUs and drivers, without any tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from busbar.detect.pci import compute_gpus
from busbar.parse import numbers
from busbar.site.cpulist import parse_cpu_list

_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""The generation of PCI Express by its GT/s."""
_COUNTERS = ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors")


@dataclass(frozen=True)
class PciGpuState:
    """A GPU on the PCI bus; None for what the kernel does not show."""

    vendor: str
    address: str
    width: tuple[int, int] | None = None
    """Lanes, now and at most."""
    generation: tuple[int, int] | None = None
    """Of PCI Express, now and at most."""
    percent: float | None = None
    """Utilization (AMD)."""
    uncorrectable: int | None = None
    """Uncorrectable errors that the driver has counted (AMD)."""


@dataclass(frozen=True)
class Port:
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
    gpus: tuple[PciGpuState, ...]
    ports: tuple[Port, ...]
    drivers: tuple[tuple[str, str], ...]
    """Module and version."""
    kfd_pids: tuple[int, ...] = ()
    """Programs that use GPUs of AMD."""


def read(root: Path = Path("/")) -> Sysfs:
    """Read the facts; ``root`` is the directory that contains `sys` and `dev`."""
    drivers = [(name, _text(root / f"sys/module/{name}/version")) for name in ("nvidia", "amdgpu")]
    return Sysfs(
        cpus=_cpus(root),
        gpus=tuple(_gpu(root, gpu.vendor, gpu.address) for gpu in compute_gpus(root)),
        ports=(*_rdma(root), *_interfaces(root)),
        drivers=tuple((name, version) for name, version in drivers if version),
        kfd_pids=kfd_pids(root),
    )


def kfd_pids(root: Path = Path("/")) -> tuple[int, ...]:
    """Return the programs that use GPUs of AMD."""
    names = [path.name for path in root.glob("sys/class/kfd/kfd/proc/*")]
    return tuple(sorted(numbers.count(name) for name in names if numbers.is_whole(name)))


def _cpus(root: Path) -> int | None:
    with suppress(ValueError):
        return len(parse_cpu_list(_text(root / "sys/devices/system/cpu/online"))) or None
    return None


def _gpu(root: Path, vendor: str, address: str) -> PciGpuState:
    device = root / "sys/bus/pci/devices" / address
    ras = [_errors(_text(file)) for file in device.glob("ras/*_err_count")]
    counted = [count for count in ras if count is not None]
    return PciGpuState(
        vendor,
        address,
        width=_both(device, "width", lambda text: numbers.whole(text) or 0),
        generation=_both(device, "speed", _generation),
        percent=numbers.real(_text(device / "gpu_busy_percent")),
        uncorrectable=sum(counted) if counted else None,
    )


def _both(device: Path, what: str, read_value: Callable[[str], int]) -> tuple[int, int] | None:
    now, most = (read_value(_text(device / f"{kind}_link_{what}")) for kind in ("current", "max"))
    return (now, most) if now and most else None


def _generation(text: str) -> int:
    rate = numbers.real(text.partition(" ")[0])
    return _GENERATIONS.get(rate, 0) if rate else 0


def _errors(text: str) -> int | None:
    """Return the uncorrectable errors of a RAS file: ``ue: 0`` and ``ce: 0``."""
    count = re.search(r"^ue: (?P<count>\d+)", text, re.MULTILINE)
    return numbers.count(count["count"]) if count else None


def _rdma(root: Path) -> Iterator[Port]:
    for directory in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        device, number = directory.parts[-3], directory.parts[-1]
        state = _text(directory / "state").partition(": ")[2] or "unknown"
        physical = _text(directory / "phys_state").partition(": ")[2]
        counts = (
            (name, numbers.whole(_text(directory / "counters" / name))) for name in _COUNTERS
        )
        yield Port(
            device if number == "1" else f"{device}/{number}",
            active=state == "ACTIVE",
            state=f"{state} ({physical})" if physical else state,
            gbit_per_s=numbers.real(_text(directory / "rate").partition(" ")[0]),
            counters=tuple((name, count) for name, count in counts if count),
            rdma=True,
        )


def _interfaces(root: Path) -> Iterator[Port]:
    for directory in sorted(root.glob("sys/class/net/*")):
        if directory.name == "lo" or not directory.is_dir():
            continue
        state = _text(directory / "operstate") or "unknown"
        # A tunnel or a dummy has no operational state; its carrier is enough.
        carrier = _text(directory / "carrier") == "1"
        speed = numbers.real(_text(directory / "speed"))
        yield Port(
            directory.name,
            active=state == "up" or (state == "unknown" and carrier),
            state=state,
            gbit_per_s=speed / 1000 if speed and speed > 0 else None,
        )


def _text(path: Path) -> str:
    """Return the content of a file; empty if there is none, or the kernel refuses it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
