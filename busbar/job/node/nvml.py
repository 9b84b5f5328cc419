# SPDX-License-Identifier: MIT
"""What NVIDIA's management library says of the GPUs of this node; it needs no root."""

from __future__ import annotations

import ctypes
import time
from typing import Any

_LINKS = 18
_MOVED = (138, 139)
"""NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX: KiB since the driver was loaded."""
_ALL_LINKS = 0xFFFFFFFF
_SM = 1
_REASONS = "nvmlDeviceGetCurrentClocksThrottleReasons"


class _Field(ctypes.Structure):
    _fields_ = (
        *(("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("at", ctypes.c_longlong)),
        *(("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("status", ctypes.c_int)),
        ("value", ctypes.c_ulonglong),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        *(("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)),
        *(("instance", ctypes.c_uint), ("part", ctypes.c_uint)),
    )


def _value(function: Any, *arguments: Any, kind: Any = ctypes.c_uint) -> Any:
    """Return what a function of NVML writes; None if it refuses."""
    found = kind()
    return None if function(*arguments, ctypes.byref(found)) else found


def _row(nvml: Any, handle: Any) -> dict[str, Any]:
    def value(name: str, *arguments: int, kind: Any = ctypes.c_uint) -> Any:
        found = _value(getattr(nvml, name), handle, *arguments, kind=kind)
        return getattr(found, "value", found)

    states = [value("nvmlDeviceGetNvLinkState", n) for n in range(_LINKS)]
    fields = (_Field * 2)(*(_Field(each, _ALL_LINKS) for each in _MOVED))
    nvml.nvmlDeviceGetFieldValues(handle, 2, fields)
    count, rows = ctypes.c_uint(256), (_Process * 256)()
    hidden = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), rows)
    busy = value("nvmlDeviceGetUtilizationRates", kind=ctypes.c_uint * 2)
    # nvmlPciInfo_t begins with the address as text.
    bus = value("nvmlDeviceGetPciInfo_v3", kind=ctypes.c_char * 128) or b""
    return {
        "percent": busy[0] if busy else 0,
        "mhz": value("nvmlDeviceGetClockInfo", _SM) or 0,
        "reasons": value(_REASONS, kind=ctypes.c_ulonglong) or 0,
        "pcie": max((value("nvmlDeviceGetPcieThroughput", n) or 0) for n in (0, 1)) * 1000,
        "links": sum(state == 1 for state in states),
        "moved": None if any(f.status for f in fields) else max(f.value for f in fields) * 1024,
        "bus": bus.decode("ascii", "replace"),
        "processes": [] if hidden else [(p.pid, p.bytes >> 20) for p in rows[: count.value]],
    }


def gpu_looks(times: list[float]) -> list[list[Any]]:
    """Return the state of all GPUs at several moments of the monotonic clock."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    count = min(_value(nvml.nvmlDeviceGetCount_v2).value, 64)
    by_index = nvml.nvmlDeviceGetHandleByIndex_v2
    handles = [_value(by_index, n, kind=ctypes.c_void_p) for n in range(count)]
    found = []
    for at in times:
        time.sleep(max(at - time.monotonic(), 0))
        now = time.monotonic()
        found.append([now, [_row(nvml, each) for each in handles]])
    return found
