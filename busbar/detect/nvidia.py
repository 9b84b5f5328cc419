# SPDX-License-Identifier: MIT
"""Detect NVIDIA GPUs from the output of ``nvidia-smi``."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from busbar.detect.detected import DetectedGpus, NumaDomain, pair_links
from busbar.parse.machine.nvidia_smi import Inventory, Topology
from busbar.site.cpulist import parse_cpu_list

# Compute capability (CUDA documentation), NVLink generation and links per GPU (NVIDIA's white
# papers), by architecture.
_ARCHITECTURES = {
    "Blackwell": ("sm_100", "nvlink5", 18),
    "Hopper": ("sm_90", "nvlink4", 18),
    "Ampere": ("sm_80", "nvlink3", 12),
    "Volta": ("sm_70", "nvlink2", 6),
    "Turing": ("sm_75", "nvlink2", 2),
    "Ada Lovelace": ("sm_89", "", 0),
    "Pascal": ("sm_60", "nvlink1", 4),
}
_HOST_LINKS = {(generation, 16): f"pcie{generation}-x16" for generation in (3, 4, 5)}
_FAMILIES = {"nvlink4": "nvlink4"}
_CLOSE = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Distances of a NIC from a GPU, nearest first."""


def gpus(
    topology: Topology | None, inventory: Inventory | None, active_links: tuple[int, ...] | None
) -> DetectedGpus | None:
    """Return the GPUs; None without an inventory, and no facts if MIG is on."""
    if inventory is None:
        return None
    first = inventory.gpus[0]
    if any(gpu.mig for gpu in inventory.gpus):
        remark = "MIG is on; MIG instances cannot use NVLink, so GPUs are omitted"
        return DetectedGpus({}, "cuda", "generic", remarks=(remark,))
    if first.architecture not in _ARCHITECTURES:
        remark = f"unknown architecture {first.architecture!r}, so GPUs are omitted"
        return DetectedGpus({}, "cuda", "generic", remarks=(remark,))
    arch, link_class, most = _ARCHITECTURES[first.architecture]
    facts: dict[str, Any] = {
        "vendor": "nvidia",
        "model": first.model,
        "arch": arch,
        "count": inventory.attached,
    }
    if first.memory_mib:
        facts["memory_mib"] = first.memory_mib
    if len(inventory.gpus) == inventory.attached:
        facts["bus_ids"] = [gpu.bus_id for gpu in inventory.gpus]
    facts |= _host_link(inventory)
    remarks: list[str] = []
    if len({gpu.model for gpu in inventory.gpus}) > 1:
        remarks.append(f"the GPUs are of several models; using {first.model} for all")
    links = None
    if inventory.attached > 1:
        if topology is None or topology.gpus != inventory.attached:
            remarks.append(
                f"nvidia-smi topo lists {topology.gpus if topology else 'no'} GPUs, -q lists"
                f" {inventory.attached}, so links are omitted"
            )
        elif not (links := _links(topology, link_class, most, active_links)):
            remarks.append("no NVLink between the GPUs")
    facts |= {"links": links} if links else {}
    family = _FAMILIES.get(link_class, "generic") if links else "generic"
    return DetectedGpus(facts, "cuda", family, _numa(topology, remarks), tuple(remarks))


def near_gpus(topology: Topology) -> dict[str, tuple[int, ...]]:
    """Return the GPUs nearest to each NIC."""
    near: dict[str, tuple[int, ...]] = {}
    for column, device in topology.nics.items():
        codes = [topology.codes[f"GPU{index}", column] for index in range(topology.gpus)]
        best = min((_CLOSE.index(code) for code in codes if code in _CLOSE), default=None)
        if best is not None:
            near[device] = tuple(i for i, code in enumerate(codes) if code == _CLOSE[best])
    return near


def _host_link(inventory: Inventory) -> dict[str, Any]:
    """Return the host link; empty if the GPUs have different ones, or one without a link class."""
    classes = {_HOST_LINKS.get(gpu.pcie) if gpu.pcie else None for gpu in inventory.gpus}
    link_class = classes.pop()
    if classes or not link_class:
        return {}
    return {"host_link": {"class": link_class, "count": 1}}


def _links(
    topology: Topology, link_class: str, most: int, active: tuple[int, ...] | None
) -> dict[str, Any] | None:
    pairs = {
        pair: topology.links(*pair)
        for pair in combinations(range(topology.gpus), 2)
        if topology.links(*pair)
    }
    if not pairs or not link_class:
        return None
    counts = set(pairs.values())
    complete = len(pairs) == topology.gpus * (topology.gpus - 1) // 2
    if complete and len(counts) == 1:
        count = counts.pop()
        # Direct links are divided among the peers; with a switch the matrix shows all of them for
        # each peer.
        own = max(active) if active else min(most, count * (topology.gpus - 1))
        form = "switched" if own == count or count * (topology.gpus - 1) > most else "all_pairs"
        return {form: {"class": link_class, "count": count}}
    return pair_links(pairs, link_class)


def _numa(topology: Topology | None, remarks: list[str]) -> tuple[NumaDomain, ...]:
    if topology is None:
        return ()
    domains: dict[int, tuple[set[int], list[int]]] = {}
    affinities = zip(topology.cpu_affinity, topology.numa_affinity, strict=True)
    for index, (cpus, numa) in enumerate(affinities):
        if cpus and numa and numa.isdecimal():
            listed, members = domains.setdefault(int(numa), (set(), []))
            try:
                listed.update(parse_cpu_list(cpus))
            except ValueError as error:
                remarks.append(f"nvidia-smi topo, GPU{index}: {error}; NUMA domains are omitted")
                return ()
            members.append(index)
    return tuple(
        NumaDomain(n, tuple(sorted(c)), tuple(g)) for n, (c, g) in sorted(domains.items())
    )
