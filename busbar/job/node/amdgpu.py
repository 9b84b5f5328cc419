# SPDX-License-Identifier: MIT
"""What the driver of AMD shows of the GPUs of this node in `/sys`; it needs no root."""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path
from typing import Any

from busbar.gate import sysfs
from busbar.parse import numbers

_CLOCK = re.compile(r"(?P<mhz>\d{1,6})Mhz \*", re.IGNORECASE)
_PROPERTY = re.compile(r"(?m)^(?P<name>location_id|domain) (?P<value>\d{1,10})$")
_WITH_STATUS, _STATUS = 3, slice(112, 120)
"""Format 1.3 of `gpu_metrics` (MI200) has `indep_throttle_status`, at these bytes."""
_REASONS = ((0xFFFFFFFF, 0x04), (0xFFFFFF << 32, 0x40))
"""Power or current, and heat: its bits, and NVML's bits for them."""
_TABLES = {4: (0, 104), 5: (0, 176), 6: (32, 128), 7: (40, 136), 8: (40, 136)}
"""Offsets of residencies (0: none) and XGMI counters in `gpu_metrics` 1.4 to 1.8 (MI300).
https://docs.kernel.org/gpu/amdgpu/thermal.html#gpu-metrics; the driver declares the layouts in
kgd_pp_interface.h. Format 1.9 is a list of attributes, and is not read."""
_RESIDENCIES = struct.Struct("<6I")
"""Cycles: all, with PROCHOT, at the power limit, and with a hot socket, regulator or HBM."""
_SLOWED = (0x08, 0x04, 0x40, 0x40, 0x40)
_LINKS = struct.Struct("<16Q")
"""KiB that were read from and written to eight links."""
_UNKNOWN = 2**64 - 1
_SLOW = 0.1
"""Share of the cycles from which on a reason counts."""


def _metrics(device: Path) -> tuple[int, tuple[int, ...], int | None]:
    """Return why the clock is low, residencies, and the bytes of XGMI in the busier direction."""
    try:
        data = (device / "gpu_metrics").read_bytes()
    except OSError:
        data = b""
    form = data[3] if data[2:3] == b"\1" and len(data) > 3 else 0
    status = int.from_bytes(data[_STATUS], "little") if form == _WITH_STATUS else 0
    cycles, links = _TABLES.get(form, (0, 0))
    if not links or len(data) < links + _LINKS.size:
        return sum(bit for mask, bit in _REASONS if status & mask), (), None
    moved = [n if n < _UNKNOWN else 0 for n in _LINKS.unpack_from(data, links)]
    most = max(sum(moved[:8]), sum(moved[8:])) << 10
    return 0, _RESIDENCIES.unpack_from(data, cycles) if cycles else (), most or None


def _slowed(first: tuple[int, ...], last: tuple[int, ...]) -> int:
    """Return the reasons that lowered a clock between two looks."""
    spent = [(new - old) % 2**32 for old, new in zip(first, last, strict=False)]
    bits = {bit for bit, n in zip(_SLOWED, spent[1:], strict=False) if n > _SLOW * spent[0]}
    return sum(bits)


def _processes(root: Path) -> dict[str, list[tuple[int, int]]]:
    """Return processes with MiB by the PCI address of a GPU."""
    found: dict[str, list[tuple[int, int]]] = {}
    for node in root.glob("sys/class/kfd/kfd/topology/nodes/*"):
        words = dict(_PROPERTY.findall(sysfs.text_in(node / "properties")))
        domain, place = (int(words.get(name, 0)) for name in ("domain", "location_id"))
        files = root.glob(f"sys/class/kfd/kfd/proc/*/vram_{sysfs.text_in(node / 'gpu_id')}")
        bus = f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 31:02x}.{place & 7}"
        found[bus] = [(int(f.parent.name), sysfs.number_in(f) >> 20) for f in files]
    return found


def _row(device: Path, processes: list[tuple[int, int]]) -> tuple[dict[str, Any], tuple[int, ...]]:
    clock = _CLOCK.search(sysfs.text_in(device / "pp_dpm_sclk"))
    reasons, cycles, moved = _metrics(device)
    row = {
        "moved": moved,
        "percent": max(sysfs.number_in(device / "gpu_busy_percent"), 0),
        "mhz": numbers.count(clock["mhz"]) if clock else 0,
        "reasons": reasons,
        "bus": device.name,
        "processes": processes,
    }
    return row, cycles


def gpu_looks(times: list[float], root: Path = Path("/")) -> list[list[Any]]:
    """Return the state of all GPUs at several moments of the monotonic clock."""
    gpus = [each for each in sysfs.compute_gpus(root) if each.vendor == "amd" and each.driven]
    devices = [root / "sys/bus/pci/devices" / each.address for each in gpus]
    found: list[list[Any]] = []
    cycles = []
    for at in times if gpus else ():
        time.sleep(max(at - time.monotonic(), 0))
        users = _processes(root)
        rows = [_row(device, users.get(device.name, [])) for device in devices]
        found.append([time.monotonic(), [row for row, _ in rows]])
        cycles.append([each for _, each in rows])
    for n, ends in enumerate(zip(cycles[0], cycles[-1], strict=True) if cycles else ()):
        for _, states in found:
            states[n]["reasons"] |= _slowed(*ends)
    return found
