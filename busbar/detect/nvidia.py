# SPDX-License-Identifier: MIT
"""GPUs of a node from the outputs of ``nvidia-smi``."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from busbar.detect.detected import GpuFacts
from busbar.parse.machine.nvidia_smi import Inventory, Topology
from busbar.site.cpulist import parse_cpu_list

# Compute capability and links by architecture (CUDA documentation; NVIDIA's white papers for the
# generation of NVLink and the number of links of a GPU).
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
"""How far a NIC is from a GPU, nearest first."""


def gpus(
    topology: Topology | None, inventory: Inventory | None, active_links: tuple[int, ...] | None
) -> GpuFacts | None:
    """None where ``nvidia-smi`` told nothing; facts are empty where MIG divides a GPU."""
    if inventory is None:
        return None
    first = inventory.gpus[0]
    if any(gpu.mig for gpu in inventory.gpus):
        remark = (
            "MIG is on: its instances cannot reach each other over NVLink, so no GPU is stated"
        )
        return GpuFacts({}, "cuda", "generic", remarks=(remark,))
    if first.architecture not in _ARCHITECTURES:
        remark = f"architecture {first.architecture!r} is not known, so no GPU is stated"
        return GpuFacts({}, "cuda", "generic", remarks=(remark,))
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
        remarks.append(f"the GPUs are of several models; {first.model} stands for all")
    links = None
    if inventory.attached > 1:
        if topology is None or topology.gpus != inventory.attached:
            told = f"{topology.gpus} GPUs" if topology else "nothing"
            remarks.append(
                f"nvidia-smi topo tells of {told}, -q of {inventory.attached}: no links are stated"
            )
        elif not (links := _links(topology, link_class, most, active_links)):
            remarks.append("no NVLink between the GPUs")
    facts |= {"links": links} if links else {}
    family = _FAMILIES.get(link_class, "generic") if links else "generic"
    return GpuFacts(facts, "cuda", family, _numa(topology, remarks), tuple(remarks))


def near_gpus(topology: Topology) -> dict[str, tuple[int, ...]]:
    """The GPUs nearest to each NIC by the matrix."""
    near: dict[str, tuple[int, ...]] = {}
    for column, device in topology.nics.items():
        codes = [topology.codes[f"GPU{index}", column] for index in range(topology.gpus)]
        best = min((_CLOSE.index(code) for code in codes if code in _CLOSE), default=None)
        if best is not None:
            near[device] = tuple(i for i, code in enumerate(codes) if code == _CLOSE[best])
    return near


def _host_link(inventory: Inventory) -> dict[str, Any]:
    """Empty where the GPUs have several kinds of link, or one that no link class describes."""
    kinds = {_HOST_LINKS.get(gpu.pcie) if gpu.pcie else None for gpu in inventory.gpus}
    known = kinds.pop()
    return {} if kinds or not known else {"host_link": {"class": known, "count": 1}}


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
    every = len(pairs) == topology.gpus * (topology.gpus - 1) // 2
    if every and len(counts) == 1:
        count = counts.pop()
        # Direct links are shared out among the peers; through a switch each peer sees all of them.
        own = max(active) if active else min(most, count * (topology.gpus - 1))
        form = "switched" if own == count or count * (topology.gpus - 1) > most else "all_pairs"
        return {form: {"class": link_class, "count": count}}
    return {
        "pairs": [
            {"between": list(pair), "class": link_class, "count": count}
            for pair, count in pairs.items()
        ]
    }


def _numa(
    topology: Topology | None, remarks: list[str]
) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
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
                remarks.append(f"nvidia-smi topo, GPU{index}: {error}; no NUMA domains are stated")
                return ()
            members.append(index)
    return tuple((n, tuple(sorted(c)), tuple(g)) for n, (c, g) in sorted(domains.items()))
