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
    hops: int
    mb_per_s: tuple[int, int] | None
    """The lowest and highest rate between the two, as the driver reports it."""


@dataclass(frozen=True)
class AmdGpu:
    """One device of ``amd-smi static``."""

    index: int
    model: str
    arch: str
    bus_id: str | None
    memory_mib: int | None
    compute_partition: str | None
    memory_partition: str | None


def parse_topology(text: str) -> tuple[AmdLink, ...]:
    """Parse the links between different GPUs; the older format has maps instead of ``links``."""
    links: list[AmdLink] = []
    for entry in _array(text):
        src = _integer(entry, "gpu")
        if "links" in entry:
            for link in entry["links"]:
                kind = str(link.get("link_type", ""))
                if kind != "SELF":
                    rate = _rate(link.get("bandwidth"))
                    dst = _integer(link, "gpu")
                    links.append(AmdLink(src, dst, kind, _integer(link, "num_hops"), rate))
        elif isinstance(entry.get("link_type"), dict):
            for name, kind in entry["link_type"].items():
                if kind != "SELF":
                    rate = _rate((entry.get("numa_bandwidth") or {}).get(name))
                    hops = _integer(entry.get("hops") or {}, name)
                    links.append(
                        AmdLink(src, numbers.count(name.removeprefix("gpu_")), kind, hops, rate)
                    )
        else:
            raise ValueError(f"GPU {src} has neither links nor link_type")
    return tuple(links)


def parse_static(text: str) -> tuple[AmdGpu, ...]:
    """Parse ``amd-smi static --asic --bus --vram --partition --json``, older and newer format."""
    gpus: list[AmdGpu] = []
    for entry in _array(text):
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


def _rate(text: object) -> tuple[int, int] | None:
    rates = re.fullmatch(r"(?P<low>\d+)-(?P<high>\d+)", str(text))
    return (numbers.count(rates["low"]), numbers.count(rates["high"])) if rates else None


def _mode(value: object) -> str | None:
    return value if isinstance(value, str) and value != "N/A" else None
