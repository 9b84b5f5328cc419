# SPDX-License-Identifier: MIT
"""Detect AMD GPUs from the output of ``amd-smi`` or ``rocm-smi``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from busbar.data import SITES
from busbar.detect.detected import UNKNOWN, DetectedGpus, NumaDomain, connected, pair_links, remark
from busbar.parse.machine.amd_smi import AmdGpu, AmdLink
from busbar.parse.machine.rocm_smi import RocmTopology
from busbar.parse.tables import beside
from busbar.site.family import LinkClass
from busbar.site.load import SITE_FILE, load
from busbar.words import grouped

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Chip:
    """A product, by its graphics version and its name."""

    arch: str
    model: str
    """A regular expression."""
    link_class: str
    family: str
    dies: int = 1
    """Compute dies, into which the mode CPX divides it."""
    count: int | None = None
    """Links to each peer, if they are the same for all pairs; the tools may not print them."""


_TABLES = beside(__file__)
_CHIPS = tuple(_Chip(**row) for row in _TABLES["chips"])
_PARTITIONS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
_HOST_LINKS = {8.0: "pcie3-x16", 16.0: "pcie4-x16", 32.0: "pcie5-x16", 64.0: "pcie6-x16"}
_PCIE_LANES = 16
_OF_MI300A = 4
_NOT_BY_PCIE = re.compile("MI250|MI300A")
"""Products that reach their host by Infinity Fabric on some or all boards."""


def gpus(
    links: tuple[AmdLink, ...] | None,
    devices: tuple[AmdGpu, ...] | None,
    rocm: RocmTopology | None,
    classes: Mapping[str, LinkClass],
) -> DetectedGpus | None:
    """Return the GPUs from ``amd-smi`` or ``rocm-smi``; None without output of either."""
    if devices:
        return _from_devices(devices, links or (), classes)
    if rocm and rocm.gpus:
        return _from_devices(rocm.gpus, rocm.links, classes)
    if links or (rocm and rocm.links):
        return _from_links(links or (rocm.links if rocm else ()), classes)
    if rocm:
        return DetectedGpus({}, "rocm", "generic", remarks=(remark("no-arch"),))
    return None


def _from_devices(
    devices: tuple[AmdGpu, ...], links: tuple[AmdLink, ...], classes: Mapping[str, LinkClass]
) -> DetectedGpus:
    first = devices[0]
    facts = _facts(first.model, first.arch, len(devices))
    remarks: tuple[str, ...] = ()
    if len({(device.model, device.arch) for device in devices}) > 1:
        remarks += (remark("several-models", model=facts["model"]),)
    if first.memory_mib:
        facts["memory_mib"] = first.memory_mib
    if all(device.bus_id for device in devices):
        facts["bus_ids"] = [device.bus_id for device in devices]
    chip = _chip(facts)
    modes = {(device.compute_partition, device.memory_partition) for device in devices}
    if len(modes) > 1:
        return DetectedGpus({}, "rocm", "generic", remarks=(remark("partitioned"),))
    compute, memory = modes.pop()
    partitions = chip.dies if chip and compute == "CPX" else _PARTITIONS.get(compute or "", 1)
    if compute in (*_PARTITIONS, "CPX") and memory:
        facts["partitioning"] = {"compute": compute, "memory": memory, "compute_count": partitions}
    if partitions == 1 and not _NOT_BY_PCIE.search(facts["model"]):
        facts |= _host_link(devices)
    if len(devices) % partitions:
        remarks += (remark("accelerators", count=len(devices), parts=partitions, mode=compute),)
    numbers = {link.src for link in links}
    if links and numbers != set(range(len(devices))):
        remarks += (remark("amd-lists", links=len(numbers), count=len(devices)),)
        return DetectedGpus(facts, "rocm", chip.family if chip else "generic", remarks=remarks)
    detected = _with_links(
        facts, _direct(links), chip, partitions=partitions, remarks=remarks, classes=classes
    )
    numa = grouped((each.numa, each.index) for each in devices if each.numa is not None)
    domains = (NumaDomain(n, (), tuple(members)) for n, members in sorted(numa.items()))
    return replace(detected, numa=tuple(domains))


def _from_links(links: tuple[AmdLink, ...], classes: Mapping[str, LinkClass]) -> DetectedGpus:
    """Return GPUs with known links only; their model follows from the form of the links."""
    count = max(max(link.src, link.dst) for link in links) + 1
    direct = _direct(links)
    complete = len(direct) == count * (count - 1) // 2
    arch = "gfx942" if complete else "gfx90a"
    # Nodes of four MI300A have twice the links: take the limit of the faster chip.
    chip = _chip({"arch": arch, "model": "MI300A" if count == _OF_MI300A else ""})
    facts = {"vendor": "amd", "model": UNKNOWN, "arch": arch, "count": count}
    remarks = (remark("amd-links-only", arch=arch),)
    return _with_links(facts, direct, chip, remarks=remarks, classes=classes)


def _facts(model: str, arch: str, count: int) -> dict[str, Any]:
    # Some versions of the tools add form factor and vendor to the product name.
    product = re.search(r"MI\d+[AX]?", model)
    short = product[0] if product else _TABLES["products"].get(model.lower())
    name = f"AMD Instinct {short}" if short else model
    return {"vendor": "amd", "model": name, "arch": arch, "count": count}


def _chip(facts: Mapping[str, Any]) -> _Chip | None:
    alike = (chip for chip in _CHIPS if chip.arch == facts["arch"])
    return next((chip for chip in alike if re.search(chip.model, facts["model"])), None)


def _host_link(devices: tuple[AmdGpu, ...]) -> dict[str, Any]:
    """Return the host link; empty if the GPUs have different ones, or one of other width."""
    speeds = {device.pcie for device in devices}
    speed = speeds.pop()
    if speeds or not speed or speed[1] != _PCIE_LANES or speed[0] not in _HOST_LINKS:
        return {}
    return {"host_link": {"class": _HOST_LINKS[speed[0]], "count": 1}}


def _direct(links: tuple[AmdLink, ...]) -> dict[Pair, tuple[int, int] | None]:
    """Return the pairs with a direct link, and their rates if the tools print them.

    Hops are 1 for all pairs that xGMI connects, in any number of steps. The weight tells: each
    step adds 15. Without a direct link, the rates are zero or missing, unless the driver prints
    them for no pair at all.
    """
    xgmi = {(link.src, link.dst): link for link in links if link.kind == "XGMI"}
    weights = [link.weight for link in xgmi.values() if link.weight]
    rates_printed = any(link.mb_per_s and link.mb_per_s[1] for link in xgmi.values())
    return {
        pair: link.mb_per_s
        for pair, link in xgmi.items()
        if pair[0] < pair[1]
        and link.hops in (None, 1)
        and (not weights or (link.weight or 0) < 2 * min(weights))
        and (not rates_printed or (link.mb_per_s and link.mb_per_s[1]))
    }


def _counts(
    direct: Mapping[Pair, tuple[int, int] | None],
    chip: _Chip,
    count: int,
    classes: Mapping[str, LinkClass],
) -> tuple[dict[Pair, int], tuple[str, ...]]:
    """Return the links of each pair, and a remark if the tools do not print their number."""
    raw = classes[chip.link_class].raw_gb_per_s * 1000
    if all(rates and rates[1] for rates in direct.values()):
        return {pair: max(1, round(rates[1] / raw)) for pair, rates in direct.items() if rates}, ()
    if chip.count:
        return dict.fromkeys(direct, chip.count), ()
    if wiring := _shipped_wiring(set(direct), chip.arch, count):
        name, counts = wiring
        return counts, (remark("wiring", site=name),)
    return dict.fromkeys(direct, 1), (remark("link-counts"),)


def _shipped_wiring(pairs: set[Pair], arch: str, count: int) -> tuple[str, dict[Pair, int]] | None:
    """Return a shipped site whose GPUs are connected in the same pairs, and its link counts."""
    for site in map(load, sorted(SITES.glob(f"*/{SITE_FILE}"))):
        gpus = site.node_type().gpus
        if not gpus or not gpus.links or not gpus.links.pairs:
            continue
        counts = {(min(p.between), max(p.between)): p.count for p in gpus.links.pairs}
        if (gpus.arch, gpus.count) == (arch, count) and set(counts) == pairs:
            return site.name, counts
    return None


def _with_links(
    facts: dict[str, Any],
    direct: Mapping[Pair, tuple[int, int] | None],
    chip: _Chip | None,
    *,
    partitions: int = 1,
    remarks: tuple[str, ...] = (),
    classes: Mapping[str, LinkClass],
) -> DetectedGpus:
    count = facts["count"]
    reason = ""
    if chip is None:
        reason = remark("links-of-arch", arch=facts["arch"])
    elif not direct:
        reason = remark("no-xgmi")
    elif chip.link_class not in classes:
        reason = remark("no-class", name=chip.link_class, what="links")
    family = chip.family if chip else "generic"
    if not direct and "host_link" in facts and count > 1:
        facts["links"] = {"through_host": True}
        reason = remark("through-host")
    if reason or chip is None:
        remarks += (reason,) if count > 1 else ()
        return DetectedGpus(facts, "rocm", family, remarks=remarks)
    link_class = chip.link_class
    counts, more = _counts(direct, chip, count, classes)
    if partitions > 1:
        # Packages are accelerators; they have the links of unpartitioned ones.
        package = {"devices": partitions, "class": "xcd-mi300x"}
        bundle = {"class": link_class, "count": chip.count or 1}
        facts["links"] = {"package": package, "all_pairs": bundle}
    elif _all_pairs(counts, count) and len(set(counts.values())) == 1:
        facts["links"] = {"all_pairs": {"class": link_class, "count": counts[0, 1]}}
    else:
        apart = not connected(count, counts) and "host_link" in facts
        facts["links"] = pair_links(counts, link_class) | ({"through_host": True} if apart else {})
    return DetectedGpus(facts, "rocm", family, remarks=remarks + more)


def _all_pairs(counts: Mapping[tuple[int, int], int], count: int) -> bool:
    """Whether each pair is linked; an output can claim any number of GPUs."""
    inside = all(0 <= a < b < count for a, b in counts)
    return inside and len(counts) == count * (count - 1) // 2
