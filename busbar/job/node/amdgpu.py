# SPDX-License-Identifier: MIT
"""What the driver of AMD shows of the GPUs of this node in `/sys`; it needs no root."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from busbar.gate import sysfs
from busbar.parse import numbers

_CLOCK = re.compile(r"(?P<mhz>\d{1,6})Mhz \*", re.IGNORECASE)
_PROPERTY = re.compile(r"(?m)^(?P<name>location_id|domain) (?P<value>\d{1,10})$")
_METRICS = (1, 3)
"""The format of `gpu_metrics` that says why a clock is low, in the same bits for all GPUs."""
_STATUS = slice(112, 120)
_REASONS = ((0xFFFFFFFF, 0x04), (0xFFFFFF << 32, 0x40))
"""Power or current, and heat: bits of `indep_throttle_status`, and those of NVML for them.
https://docs.kernel.org/gpu/amdgpu/thermal.html#gpu-metrics"""


def _reasons(device: Path) -> int:
    try:
        data = (device / "gpu_metrics").read_bytes()
    except OSError:
        return 0
    status = int.from_bytes(data[_STATUS], "little") if tuple(data[2:4]) == _METRICS else 0
    return sum(bit for mask, bit in _REASONS if status & mask)


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


def _row(device: Path, processes: list[tuple[int, int]]) -> dict[str, Any]:
    clock = _CLOCK.search(sysfs.text_in(device / "pp_dpm_sclk"))
    return {
        "percent": max(sysfs.number_in(device / "gpu_busy_percent"), 0),
        "mhz": numbers.count(clock["mhz"]) if clock else 0,
        "reasons": _reasons(device),
        "bus": device.name,
        "processes": processes,
    }


def gpu_looks(times: list[float], root: Path = Path("/")) -> list[list[Any]]:
    """Return the state of all GPUs at several moments of the monotonic clock."""
    gpus = [each for each in sysfs.compute_gpus(root) if each.vendor == "amd" and each.driven]
    devices = [root / "sys/bus/pci/devices" / each.address for each in gpus]
    found: list[list[Any]] = []
    for at in times if gpus else ():
        time.sleep(max(at - time.monotonic(), 0))
        users = _processes(root)
        found.append([time.monotonic(), [_row(d, users.get(d.name, [])) for d in devices]])
    return found
