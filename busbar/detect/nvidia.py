# SPDX-License-Identifier: MIT
"""Detect NVIDIA GPUs from the output of ``nvidia-smi``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from busbar.detect.detected import UNKNOWN, DetectedGpus, NumaDomain, connected, pair_links, remark
from busbar.detect.pci import Place
from busbar.parse import numbers
from busbar.parse.cpulist import parse_cpu_list
from busbar.parse.machine.nvidia_smi import Inventory, ListedGpu, Topology
from busbar.parse.tables import beside
from busbar.site.family import LinkClass


class NvidiaChip(NamedTuple):
    """A group of products with the same chip and NVLinks."""

    architecture: str
    """As ``nvidia-smi -q`` prints it."""
    model: str
    """A regular expression, found in the name of the product."""
    arch: str
    link_class: str
    """Empty: without NVLink."""
    links: int
    """NVLinks of one GPU."""
    pcie: int
    """Generation of PCI Express; 0: unknown."""


CHIPS = tuple(NvidiaChip(*row) for row in beside(__file__))
"""The first that fits counts."""
BRIDGED = re.compile(r"PCI-?E|\bNVL\b|RTX|GeForce|Quadro|TITAN|\bA[34]0\b", re.IGNORECASE)
"""Cards whose NVLinks are bridges between neighbours, never a switch."""
FAMILY = "nvlink4"
"""The family of NVIDIA's GPUs with NVLink of any generation, or on PCI Express."""


def by_links(pair: int, gpu: int) -> NvidiaChip:
    """Return the chip to assume for a number of NVLinks of a pair, and of a GPU as a whole.

    Generations share these numbers: the older one is assumed.
    """
    older = sorted(
        (chip for chip in CHIPS if chip.links and chip.arch >= "sm_70"), key=lambda c: c.arch
    )
    same = [chip for count in (gpu, pair) for chip in older if chip.links == count]
    return next(iter(same or [chip for chip in older if chip.links >= min(gpu, 18)]))


_HOST_LINKS = {(generation, 16): f"pcie{generation}-x16" for generation in (3, 4, 5, 6)}
_C2C = "nvlink-c2c"
_RACK = re.compile(r"\bGB[123]00\b")
"""Products whose switches are outside of the node."""
_CLOSE = ("PIX", "PXB", "PHB", "NODE")
"""Distances of a NIC from a GPU of the same NUMA domain, nearest first."""


@dataclass(frozen=True)
class NvidiaOutputs:
    """The parsed outputs of NVIDIA's tools; None for those that are missing."""

    topology: Topology | None = None
    inventory: Inventory | None = None
    active_links: tuple[int, ...] | None = None
    archs: tuple[str, ...] | None = None
    """The compute capability of each GPU."""
    multicast: bool | None = None
    """What the driver reports of the first GPU."""
    nvls_off: bool = False
    """NCCL is configured not to use it."""
    listed: tuple[ListedGpu, ...] | None = None
    mig: tuple[bool, ...] | None = None
    """Whether MIG is on for each GPU, by a query."""

    @property
    def divided(self) -> list[int]:
        """The GPUs that are divided into MIG instances."""
        states = [
            [gpu.mig for gpu in self.inventory.gpus] if self.inventory else [],
            [gpu.instances > 0 for gpu in self.listed or ()],
            self.mig or (),
        ]
        return sorted({gpu for state in states for gpu, is_on in enumerate(state) if is_on})


def gpus(outputs: NvidiaOutputs, classes: Mapping[str, LinkClass]) -> DetectedGpus | None:
    """Return the GPUs; None if no tool was asked, and no facts if MIG is on."""
    if divided := outputs.divided:
        return _unusable(remark("mig", gpus=", ".join(map(str, divided))))
    if outputs.inventory is None and outputs.topology:
        return _from_topology(outputs, classes)
    if outputs.inventory is None:
        return _unusable(remark("by-name")) if outputs.listed else None
    inventory = outputs.inventory
    first = inventory.gpus[0]
    chip = chip_of(first.architecture or "", first.model, outputs.archs)
    if chip is None:
        return _unusable(remark("architecture", name=first.architecture, model=first.model))
    facts: dict[str, Any] = {
        "vendor": "nvidia",
        "model": first.model,
        "arch": chip.arch,
        "count": inventory.attached,
    }
    if first.memory_mib:
        facts["memory_mib"] = first.memory_mib
    if len(inventory.gpus) == inventory.attached:
        facts["bus_ids"] = [gpu.bus_id for gpu in inventory.gpus]
    remarks: list[str] = []
    facts |= _host_link(inventory, chip, remarks, classes)
    if len({gpu.model for gpu in inventory.gpus}) > 1:
        remarks.append(remark("several-models", model=first.model))
    links = None
    if inventory.attached > 1:
        topology = outputs.topology
        if topology is None or topology.gpus != inventory.attached:
            found = topology.gpus if topology else "no"
            remarks.append(remark("nvidia-lists", links=found, count=inventory.attached))
        else:
            bridged = BRIDGED.search(first.model) is not None
            links = _links(topology, chip, outputs.active_links, remarks, classes, bridged=bridged)
    return _detected(facts, links, chip, outputs, remarks)


def _unusable(why: str) -> DetectedGpus:
    """Return GPUs without facts."""
    return DetectedGpus({}, "cuda", "generic", remarks=(why,))


def _from_topology(
    outputs: NvidiaOutputs, classes: Mapping[str, LinkClass]
) -> DetectedGpus | None:
    """Return GPUs from the topology matrix only."""
    topology = outputs.topology
    assert topology
    exact = chip_of("", "", outputs.archs) if outputs.archs else None
    chip = exact or by_links(*_most_links(topology))
    remarks = [remark("nvidia-links-only")]
    if not exact:
        remarks.append(remark("assumed-arch", arch=chip.arch, links=chip.link_class or "none"))
    facts = {"vendor": "nvidia", "model": UNKNOWN, "arch": chip.arch, "count": topology.gpus}
    links = None
    if topology.gpus > 1:
        bridged = topology.gpus == 2  # a pair needs no switch
        links = _links(topology, chip, outputs.active_links, remarks, classes, bridged=bridged)
    return _detected(facts, links, chip, outputs, remarks)


def _detected(
    facts: dict[str, Any],
    links: dict[str, Any] | None,
    chip: NvidiaChip,
    outputs: NvidiaOutputs,
    remarks: list[str],
) -> DetectedGpus:
    in_domain = outputs.inventory and any(gpu.domain for gpu in outputs.inventory.gpus)
    if links and "switched" in links and (in_domain or _RACK.search(facts["model"])):
        links["switched"]["domain_nodes"] = None
        remarks.append(remark("rack"))
    if links and "host_link" not in facts:
        links.pop("through_host", None)
    facts |= {"links": links} if links else {}
    if outputs.multicast is not None and links and "switched" in links:
        # The operator may be unable to enable it, for example if guests share the switch.
        facts["multicast"] = outputs.multicast and not outputs.nvls_off
        if outputs.multicast and outputs.nvls_off:
            remarks.append(remark("nvls-off"))
    numa = _numa(outputs.topology, remarks)
    return DetectedGpus(facts, "cuda", FAMILY, numa, tuple(remarks))


def places(topology: Topology) -> list[Place]:
    """Return the places of the GPUs as the matrix shows them: which share a switch or a socket."""

    def first(index: int, *codes: str) -> int:
        others = (n for n in range(index) if topology.codes[f"GPU{index}", f"GPU{n}"] in codes)
        return next(others, index)

    def group(index: int, *codes: str) -> int:
        up = first(index, *codes)
        return index if up == index else group(up, *codes)

    switches = [group(index, "PIX", "PXB") for index in range(topology.gpus)]
    return [
        Place((f"root {switch}", f"switch {switch}"), group(index, "PIX", "PXB", "PHB", "NODE"))
        for index, switch in enumerate(switches)
    ]


def near_gpus(topology: Topology) -> dict[str, tuple[int, ...]]:
    """Return the GPUs nearest to each NIC; none for a NIC of another NUMA domain."""
    near: dict[str, tuple[int, ...]] = {}
    for column, device in topology.nics.items():
        codes = [topology.codes[f"GPU{index}", column] for index in range(topology.gpus)]
        best = min((_CLOSE.index(code) for code in codes if code in _CLOSE), default=None)
        near[device] = tuple(
            i for i, code in enumerate(codes) if best is not None and code == _CLOSE[best]
        )
    return near


def chip_of(architecture: str, model: str, archs: tuple[str, ...] | None) -> NvidiaChip | None:
    """Return the chip, from the driver's report or from the product name."""
    named = next(
        (
            chip
            for chip in CHIPS
            if architecture in ("", chip.architecture)
            and re.search(chip.model, model, re.IGNORECASE)
            and (not archs or archs[0] == chip.arch)
        ),
        None,
    )
    if named or not archs:
        return named
    return NvidiaChip(architecture, "", archs[0], "", 0, 0)


def _host_link(
    inventory: Inventory, chip: NvidiaChip, remarks: list[str], classes: Mapping[str, LinkClass]
) -> dict[str, Any]:
    """Return the host link; empty if the GPUs have different ones, or one without a link class.

    If the report of a card omits the link, take the one of the product; the slot may offer less.
    """
    if all(gpu.c2c for gpu in inventory.gpus):
        return {"host_link": {"class": _C2C, "count": 1}} if _C2C in classes else {}
    speeds = {gpu.pcie for gpu in inventory.gpus}
    if speeds == {None} and chip.pcie and BRIDGED.search(inventory.gpus[0].model):
        speeds = {(chip.pcie, 16)}
        remarks.append(remark("assumed-pcie", generation=chip.pcie))
    link_classes = {_HOST_LINKS.get(speed) if speed else None for speed in speeds}
    link_class = link_classes.pop()
    if link_classes or not link_class or link_class not in classes:
        return {}
    return {"host_link": {"class": link_class, "count": 1}}


def _most_links(topology: Topology) -> tuple[int, int]:
    """Return the most NVLinks of one pair, and the most of one GPU if all links were direct."""
    counts = [
        [topology.links(gpu, other) for other in range(topology.gpus) if other != gpu]
        for gpu in range(topology.gpus)
    ]
    return max((max(row, default=0) for row in counts), default=0), max(map(sum, counts))


def _links(
    topology: Topology,
    chip: NvidiaChip,
    active: tuple[int, ...] | None,
    remarks: list[str],
    classes: Mapping[str, LinkClass],
    *,
    bridged: bool,
) -> dict[str, Any] | None:
    pairs = {
        pair: topology.links(*pair)
        for pair in combinations(range(topology.gpus), 2)
        if topology.links(*pair)
    }
    if not pairs:
        remarks.append("no NVLink between the GPUs")
        return {"through_host": True}
    if chip.link_class not in classes:
        name = chip.link_class or f"of the NVLinks of {chip.arch}"
        remarks.append(remark("no-class", name=name, what="links"))
        return None
    counts = set(pairs.values())
    complete = len(pairs) == topology.gpus * (topology.gpus - 1) // 2
    most, direct = _most_links(topology)
    own = max(active) if active and max(active) else chip.links
    if complete and not bridged and (direct > own or most == own):
        # Direct links are divided among the peers; with a switch the matrix shows all of them for
        # each peer.
        if len(counts) > 1:
            slow = [
                gpu
                for gpu in range(topology.gpus)
                if all(n < most for pair, n in pairs.items() if gpu in pair)
            ]
            gpus = ", ".join(map(str, slow)) or "pairs"
            remarks.append(remark("links-down", gpus=gpus, most=most))
        return {"switched": {"class": chip.link_class, "count": most}}
    if complete and len(counts) == 1:
        return {"all_pairs": {"class": chip.link_class, "count": most}}
    apart = not connected(topology.gpus, pairs)
    return pair_links(pairs, chip.link_class) | ({"through_host": True} if apart else {})


def _numa(topology: Topology | None, remarks: list[str]) -> tuple[NumaDomain, ...]:
    if topology is None:
        return ()
    domains: dict[int, tuple[set[int], list[int]]] = {}
    affinities = zip(topology.cpu_affinity, topology.numa_affinity, strict=True)
    for index, (cpus, numa) in enumerate(affinities):
        if cpus and numa and numa.isdecimal():
            listed, members = domains.setdefault(numbers.count(numa), (set(), []))
            try:
                listed.update(parse_cpu_list(cpus))
            except ValueError as error:
                remarks.append(f"nvidia-smi topo, GPU{index}: {error}; NUMA domains are omitted")
                return ()
            members.append(index)
    return tuple(
        NumaDomain(n, tuple(sorted(c)), tuple(g)) for n, (c, g) in sorted(domains.items())
    )
