# SPDX-License-Identifier: MIT
"""Parse ``amd-smi topology --json``, both formats, and ``amd-smi static --json``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from busbar.parse import numbers


@dataclass(frozen=True)
class AmdLink:
    """One direction between two GPUs."""

    src: int
    dst: int
    kind: str
    """``XGMI``, ``PCIE``..."""
    hops: int | None
    """1 for every pair with xGMI in most versions, also without a direct link."""
    weight: int | None
    """The cost; each hop over xGMI adds the same."""
    mb_per_s: tuple[int, int] | None
    """The rate of one link and of all between the two; zeros or None without a direct link."""


@dataclass(frozen=True)
class AmdGpu:
    """One device of ``amd-smi static``, or of ``rocm-smi``, which says less of it."""

    index: int
    model: str
    arch: str
    bus_id: str | None = None
    memory_mib: int | None = None
    compute_partition: str | None = None
    memory_partition: str | None = None
    pcie: tuple[float, int] | None = None
    """GT/s and lanes of the fastest link that GPU and slot support."""
    numa: int | None = None
    """NUMA domain."""


def parse_topology(text: str) -> tuple[AmdLink, ...]:
    """Parse the links between different GPUs; the older format has maps instead of ``links``."""
    return tuple(
        AmdLink(
            src=src,
            dst=_integer(link, "gpu"),
            kind=str(link.get("link_type", "")),
            hops=_optional(link, "num_hops"),
            weight=_optional(link, "weight"),
            mb_per_s=rate_range(link.get("bandwidth")),
        )
        for entry in _array(text)
        for src in [_integer(entry, "gpu")]
        for link in _links(entry)
        if link.get("link_type") != "SELF"
    )


def _links(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the links of a GPU, those of the older format as in the newer one."""
    if "links" in entry:
        return list(entry["links"])
    if not isinstance(entry.get("link_type"), dict):
        raise ValueError(f"GPU {entry['gpu']} has neither links nor link_type")
    maps = {"num_hops": "hops", "weight": "weight", "bandwidth": "numa_bandwidth"}
    return [
        {"gpu": numbers.count(name.removeprefix("gpu_")), "link_type": kind}
        | {key: (entry.get(old) or {}).get(name) for key, old in maps.items()}
        for name, kind in entry["link_type"].items()
    ]


def parse_static(text: str) -> tuple[AmdGpu, ...]:
    """Parse ``amd-smi static --asic --bus --vram --partition --json``, older and newer format."""
    return gpus_of(_array(text))


def gpus_of(entries: list[dict[str, Any]]) -> tuple[AmdGpu, ...]:
    """Return the GPUs of the entries that the tool prints, one for each."""
    gpus: list[AmdGpu] = []
    for entry in entries:
        asic, partition = entry.get("asic") or {}, entry.get("partition") or {}
        arch = str(asic.get("target_graphics_version", ""))
        if not re.fullmatch(r"gfx[0-9a-f]+", arch):
            raise ValueError(f"GPU {entry.get('gpu')} has no graphics version")
        size = (entry.get("vram") or {}).get("size") or {}
        memory = size.get("value") if isinstance(size, dict) else None
        gpus.append(
            AmdGpu(
                index=_integer(entry, "gpu"),
                model=str(asic.get("market_name", "")),
                arch=arch,
                bus_id=(entry.get("bus") or {}).get("bdf"),
                pcie=_pcie(entry.get("bus") or {}),
                memory_mib=memory if isinstance(memory, int) else None,
                compute_partition=_mode(partition.get("compute_partition")),
                memory_partition=_mode(partition.get("memory_partition")),
            )
        )
    return tuple(gpus)


def _array(text: str) -> list[dict[str, Any]]:
    try:
        document = numbers.load_json(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from error
    if isinstance(document, dict):
        document = document.get("gpu_data")
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise ValueError("not a list of GPUs")
    return document


def _integer(entry: dict[str, Any], key: str) -> int:
    value = entry.get(key)
    if not isinstance(value, int):
        raise ValueError(f"{key} must be a number, got {value!r}")
    return value


def _optional(entry: dict[str, Any], key: str) -> int | None:
    return None if entry.get(key) in (None, "N/A") else _integer(entry, key)


def _pcie(bus: dict[str, Any]) -> tuple[float, int] | None:
    """Return speed and lanes; the speed is text in older versions, a value with unit in newer."""
    speed, lanes = bus.get("max_pcie_speed"), bus.get("max_pcie_width")
    if isinstance(speed, dict):
        speed = speed.get("value")
    match = re.fullmatch(r"(?P<speed>\d+(?:\.\d+)?)(?: GT/s)?", str(speed))
    if not match or not isinstance(lanes, int):
        return None
    speed_gt = numbers.real(match["speed"])
    return (speed_gt, lanes) if speed_gt else None


def rate_range(text: object) -> tuple[int, int] | None:
    """Return lowest and highest rate of ``50000-200000``; None for anything else."""
    rates = re.fullmatch(r"(?P<low>\d+)-(?P<high>\d+)", str(text))
    return (numbers.count(rates["low"]), numbers.count(rates["high"])) if rates else None


def _mode(value: object) -> str | None:
    return value if isinstance(value, str) and value != "N/A" else None
