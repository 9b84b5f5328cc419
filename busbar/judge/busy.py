# SPDX-License-Identifier: MIT
"""Whether other programs on the nodes can explain readings below their band.

Such a reading is ``unknown``: it neither passes nor speaks against the machine. The record of
``busy.awk`` has to account for it: each load has a floor, the share of the band's end that a
reading keeps at worst. A reading below the product of the floors stays ``degraded``.

CPU: a run with ``n`` ranks advances while all of them run. If the one worst off loses the share L
of its time to others, ``(1 - L) ** n`` remains. Memory: programs on other CPUs take their part of
its bandwidth, in proportion to their number, but not more than three quarters. GPU: contexts take
turns, and copies share the links. Clock: rates follow it. Network: what others sent before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from busbar.judge.run import Run
from busbar.judge.verdicts import Judged
from busbar.output.job_output import JobOutput
from busbar.output.reading import Evidence
from busbar.parse.busy import Busy, Gpu, GpuProcess
from busbar.parse.events import Place
from busbar.verdict import Verdict

LoadKind = Literal["cpu-busy", "gpu-busy", "gpu-throttled", "nic-busy"]

_MARGIN = 0.7
"""The record is a mean over the run; a reading is a part of it."""
_LOST = 0.1
"""A smaller share is noise that bands allow for. A daemon at 1 % of a CPU costs less."""
_MOST_RANKS = 8
_QUEUED = 2
"""The most ranks that wait at the same time for one program of others."""
_FULL = 0.9
_STREAMING = 0.1
"""The share of a node's CPUs from which on others can take a visible part of memory bandwidth."""
_SATURATED = 0.25
"""About this share of a node's cores saturates its memory: more take nothing more."""
_ACTIVE_PERCENT = 10
_ACTIVE_GB_PER_S = 1.0
_SLOW_CLOCK = 0.9
_NIC_SHARE = 0.2
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
"""Bits of ``clocks_throttle_reasons.active``; the others are no limits of the machine."""


@dataclass(frozen=True)
class Load:
    """Something that slowed a run down and is not part of it."""

    cause: LoadKind
    floor: float
    """The lowest share of its band's end that a reading falls to by this alone."""
    summary: str
    evidence: Evidence


def loads(facts: JobOutput, run: Run) -> tuple[Load, ...]:
    """Return what the record of a run shows of others, as far as it can slow the run down."""
    found: dict[LoadKind, Load] = {}
    for busy, evidence in facts.events_of(Busy):
        for load in _of_node(busy, evidence, facts, run):
            # The nodes of a run wait for each other: the busiest decides.
            if load.cause not in found or load.floor < found[load.cause].floor:
                found[load.cause] = load
    return tuple(found.values())


def excused(judged: Iterable[Judged], found: Sequence[Load]) -> list[Judged]:
    """Return the readings; those below their band that ``found`` accounts for are ``unknown``."""
    return [
        replace(each, verdict=Verdict.UNKNOWN)
        if each.verdict is Verdict.DEGRADED and accounts_for(found, _share(each))
        else each
        for each in judged
    ]


def accounts_for(found: Sequence[Load], share: float) -> bool:
    """Whether loads can bring a reading down to ``share`` of what it should be."""
    return bool(found) and share >= _MARGIN * prod(load.floor for load in found)


def _share(judged: Judged) -> float:
    value = judged.reading.value
    if not judged.bound:
        return 0.0
    latency = judged.reading.kind == "latency_us"
    return judged.bound / value if latency else value / judged.bound


def _of_node(busy: Busy, evidence: Evidence, facts: JobOutput, run: Run) -> Iterator[Load]:
    through_host = run.memory != "device" or "H" in run.buffers
    lost = _lost(busy)
    runs = (1 - min(lost, 1)) ** min(max(run.ranks or 2, 1), _MOST_RANKS)
    memory = _memory_share(busy) if through_host else 1.0
    if lost >= _LOST or memory < 1:
        yield Load("cpu-busy", runs * memory, _cpu_summary(busy, lost), evidence)
    if run.memory == "host":
        return
    used = _used_gpus(busy, facts)
    strangers = [each for each in busy.gpu_processes if each.gpu in used]
    active = [each for each in strangers if _may_be_active(used[each.gpu])]
    if active:
        yield Load("gpu-busy", 1 / (1 + len(active)), _gpu_summary(busy, active, used), evidence)
    for gpu in used.values():
        clock = gpu.mhz / gpu.max_mhz if gpu.max_mhz else 0.0
        if 0 < clock < _SLOW_CLOCK:
            yield Load("gpu-throttled", clock, _throttle_summary(busy, gpu), evidence)
    for nic in busy.nics if (run.nodes or 1) > 1 else ():
        share = nic.gb_per_s / nic.link_gb_per_s if nic.link_gb_per_s else 0.0
        if share >= _NIC_SHARE:
            summary = (
                f"{nic.name} of {busy.host} carried {nic.gb_per_s:.3g} of"
                f" {nic.link_gb_per_s:.3g} GB/s before the job sent anything"
            )
            yield Load("nic-busy", max(1 - share, 0.5), summary, evidence)


def _lost(busy: Busy) -> float:
    """Return the share of its time that the rank worst off lost to others and the hypervisor."""
    stolen = busy.steal / busy.cpus if busy.cpus else 0.0
    if busy.wait is None or busy.waiting is None:
        # The kernel does not count. CPUs that are not full let everyone run.
        full = busy.cpus and busy.own + busy.others >= _FULL * busy.cpus
        return (busy.others / busy.cpus if full else 0.0) + stolen
    if not busy.waiting:
        return stolen
    # More ranks than CPUs wait for each other, others or not.
    by_ranks = max(busy.own + busy.waiting - busy.cpus, 0.0)
    by_others = min(busy.waiting - by_ranks, _QUEUED * busy.others)
    return busy.wait * max(by_others, 0.0) / busy.waiting + stolen


def _memory_share(busy: Busy) -> float:
    if not busy.node_cpus or busy.node_others < _STREAMING * busy.node_cpus:
        return 1.0
    return max(busy.own / (busy.own + busy.node_others), _SATURATED)


def _cpu_summary(busy: Busy, lost: float) -> str:
    text = f"other programs use {busy.others:.3g} of the {busy.cpus} CPUs of the ranks"
    if busy.node_cpus > busy.cpus:
        text += f" and {busy.node_others:.3g} of the {busy.node_cpus} CPUs of {busy.host}"
    text += f"; a rank loses {lost:.0%} of its time"
    if busy.steal >= _LOST * busy.cpus:
        text += f"; the hypervisor takes {busy.steal:.3g} CPUs"
    named = ", ".join(f"{each} ({each.cpus:.2g} CPUs)" for each in busy.processes)
    return f"{text}: {named}" if named else text


def _used_gpus(busy: Busy, facts: JobOutput) -> dict[int, Gpu]:
    """Return the GPUs of a node that the run uses; all if the output does not show which."""
    buses = {d.bus for d in facts.devices.values() if ":" in d.bus}
    visible: set[str] = set()
    for place, _ in facts.events_of(Place):
        buses |= {place.device} if place.device else set()
        visible |= set((place.visible or "").split(",")) - {""}
    by_bus = {g.gpu: g for g in busy.gpus if any(_same_bus(g.bus, bus) for bus in buses)}
    by_number = {g.gpu: g for g in busy.gpus if str(g.gpu) in visible}
    return by_bus or by_number or {g.gpu: g for g in busy.gpus}


def _same_bus(one: str, other: str) -> bool:
    """Whether two PCI addresses agree: tools write ``00000000:06:00.0`` and ``0000:00:06``."""
    parts = [re.split(r"[:.]", each.lower()) for each in (one, other)]
    return parts[0][-3:] == parts[1][-3:] or parts[0][-3:-1] == parts[1][-2:]


def _may_be_active(gpu: Gpu) -> bool:
    """Whether a process on a GPU used it, or nothing shows that it was idle."""
    if gpu.percent >= _ACTIVE_PERCENT or gpu.link_gb_per_s is None:
        return True
    return gpu.link_gb_per_s >= _ACTIVE_GB_PER_S


def _gpu_summary(busy: Busy, active: Sequence[GpuProcess], used: dict[int, Gpu]) -> str:
    text = "; ".join(
        f"{each} on GPU {each.gpu} of {busy.host} ({each.mib:.0f} MiB)" for each in active[:3]
    )
    for gpu in dict.fromkeys(each.gpu for each in active[:3]):
        rate = used[gpu].link_gb_per_s
        moved = "traffic not read" if rate is None else f"{rate:.3g} GB/s over NVLink"
        text += f"; GPU {gpu} before the job: {used[gpu].percent:.0f} % busy, {moved}"
    return text


def _throttle_summary(busy: Busy, gpu: Gpu) -> str:
    reasons = ", ".join(name for bit, name in _REASONS.items() if gpu.throttle & bit)
    return (
        f"GPU {gpu.gpu} of {busy.host} ran at {gpu.mhz:.0f} of {gpu.max_mhz:.0f} MHz:"
        f" {reasons or 'no reason given'}"
    )
