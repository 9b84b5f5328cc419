# SPDX-License-Identifier: MIT
"""Detect AMD GPUs from the output of ``amd-smi`` or ``rocm-smi``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from busbar.detect.detected import DetectedGpus, NumaDomain, pair_links
from busbar.parse.machine.amd_smi import AmdGpu, AmdLink
from busbar.parse.machine.rocm_smi import RocmTopology

# By graphics version: link class and family (ROCm documentation, GPU hardware specifications).
_ARCHITECTURES = {
    "gfx90a": ("xgmi-mi250x", "mi250x"),
    "gfx942": ("xgmi-mi300x", "mi300x"),
}
_DIES = 8
"""Compute dies of an MI300X."""
_PARTITIONS = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": _DIES}


def gpus(
    links: tuple[AmdLink, ...] | None,
    devices: tuple[AmdGpu, ...] | None,
    rocm: RocmTopology | None,
) -> DetectedGpus | None:
    """Return the GPUs from ``amd-smi``, else from ``rocm-smi``; None without output of either."""
    if devices:
        return _from_amd_smi(devices, links or ())
    if rocm and rocm.archs:
        return _from_rocm_smi(rocm)
    if links or rocm:
        remark = "no tool prints the GPUs' graphics version, so GPUs are omitted"
        return DetectedGpus({}, "rocm", "generic", remarks=(remark,))
    return None


def _from_amd_smi(devices: tuple[AmdGpu, ...], links: tuple[AmdLink, ...]) -> DetectedGpus:
    first = devices[0]
    facts = _facts(first.model, first.arch, len(devices))
    if first.memory_mib:
        facts["memory_mib"] = first.memory_mib
    if all(device.bus_id for device in devices):
        facts["bus_ids"] = [device.bus_id for device in devices]
    partitions = _PARTITIONS.get(first.compute_partition or "", 1)
    if first.compute_partition in _PARTITIONS and first.memory_partition:
        facts["partitioning"] = {
            "compute": first.compute_partition,
            "memory": first.memory_partition,
            "compute_count": partitions,
        }
    direct = {
        (link.src, link.dst): _count(link)
        for link in links
        if link.kind == "XGMI" and link.hops == 1 and link.src < link.dst
    }
    return _with_links(facts, direct, partitions, ())


def _from_rocm_smi(rocm: RocmTopology) -> DetectedGpus:
    arch = next(iter(rocm.archs.values()))
    model = next(iter(rocm.models.values()), f"AMD {arch}")
    facts = _facts(model, arch, rocm.gpus)
    direct = {
        pair: 1
        for pair, kind in rocm.kinds.items()
        if kind == "XGMI" and rocm.hops.get(pair, 1) == 1
    }
    numa: dict[int, list[int]] = {}
    for index, domain in sorted(rocm.numa.items()):
        numa.setdefault(domain, []).append(index)
    remarks: tuple[str, ...] = ()
    if direct and arch == "gfx90a":
        remarks = (
            "rocm-smi does not print the number of links of a pair, so each count is 1; use"
            " amd-smi",
        )
    domains = tuple(NumaDomain(n, (), tuple(members)) for n, members in sorted(numa.items()))
    return replace(_with_links(facts, direct, 1, remarks), numa=domains)


def _facts(model: str, arch: str, count: int) -> dict[str, Any]:
    # Some versions of the tools add form factor and vendor to the product name.
    product = re.search(r"MI\d+[AX]?", model)
    name = f"AMD Instinct {product[0]}" if product else model
    return {"vendor": "amd", "model": name, "arch": arch, "count": count}


def _count(link: AmdLink) -> int:
    """Return the number of links; the driver prints the rates of one link and of the bundle."""
    least, most = link.mb_per_s or (1, 1)
    return max(1, most // least) if least else 1


def _with_links(
    facts: dict[str, Any],
    direct: dict[tuple[int, int], int],
    partitions: int,
    remarks: tuple[str, ...],
) -> DetectedGpus:
    link_class, family = _ARCHITECTURES.get(facts["arch"], ("", "generic"))
    if not link_class or (facts["count"] > 1 and not direct):
        reason = f"the links of {facts['arch']} are unknown" if not link_class else "no XGMI link"
        remarks += (f"{reason}, so links are omitted",) if facts["count"] > 1 else ()
        return DetectedGpus(facts, "rocm", family, remarks=remarks)
    if direct:
        facts["links"] = _links(facts["count"], direct, link_class, partitions)
    return DetectedGpus(facts, "rocm", family, remarks=remarks)


def _links(
    count: int, direct: dict[tuple[int, int], int], link_class: str, partitions: int
) -> dict[str, Any]:
    if partitions > 1:
        # Packages are accelerators; the links between them are those of unpartitioned ones.
        package = {"devices": partitions, "class": "xcd-mi300x"}
        return {"package": package, "all_pairs": {"class": link_class, "count": 1}}
    complete = len(direct) == count * (count - 1) // 2
    if complete and len(set(direct.values())) == 1:
        return {"all_pairs": {"class": link_class, "count": next(iter(direct.values()))}}
    return pair_links(direct, link_class)
