# SPDX-License-Identifier: MIT
"""Whether other programs on the nodes can explain readings below their band.

Such a reading is ``unknown``: it neither passes nor accuses the machine. The record of
``busy.awk`` has to account for it: each load has a floor, the share of the band's end that a
reading keeps at worst. A reading below the product of the floors stays ``degraded``.

CPU: a run advances while all its ranks run. If W of them wait for a CPU on average, because of
others, all of them run for at least 1 - W of the time; a short measurement can fall into the time
slices of others. A reading that tells how long its ranks waited is judged by that instead: the
record is a mean, and the reading can lie in a better or a worse part of the run. Memory:
programs on other CPUs take their part of its bandwidth, in proportion to their number, but not
more than three quarters. GPU: copies share the links, and contexts take turns: an operation,
however short, waits for the turn of each other process. Clock: rates follow it. Network: what
others sent before the job did, or what ports carried beyond what the readings of the run explain,
is not left for it. A CPU quota: the ranks run for the share of their time that it allows.

A limit that was measured in the same run, as on a host, is too low under such a load: a reading
beyond it is ``unknown`` as well. A limit of physics stays one.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence, Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import LARGE_BYTES, Judged
from busbar.parse.busy import Busy, BusyGpu, GpuProcess
from busbar.parse.cpulist import parse_cpu_list
from busbar.parse.events import Rank, RankPlace
from busbar.parse.tables import beside
from busbar.verdict import Verdict

LoadKind = Literal["cpu-busy", "cpu-quota", "gpu-busy", "gpu-throttled", "nic-busy"]

_TABLES = beside(__file__)
_TUNED: Mapping[str, float] = _TABLES["tuned"]
REASONS: Mapping[int, str] = _TABLES["reasons"]
"""Limits that lower the clock of a GPU, by their bits in ``clocks_throttle_reasons.active``."""


@dataclass(frozen=True)
class Load:
    """Something that slowed a run down and is not part of it."""

    cause: LoadKind
    floor: float
    """The lowest share of its band's end that a reading keeps under this load only."""
    summary: str
    evidence: Evidence
    slows_limit: bool = False
    """Whether the limits of the run were measured under it."""
    starves: bool = False
    """Whether it can keep a run from ending in time."""
    wait_us: float = 0.0
    """How much it can delay one operation, in addition."""
    pause_us: float = 0.0
    """How much it can delay one measurement, in addition."""
    most_waiting: float | None = None
    """The largest part of its time for which others can have kept a reading that knows its own
    waiting from the CPUs; None if the load is not one of CPUs."""
    apart: float = 1.0
    """The floor of such a reading without the waiting."""
    exact: bool = False
    """Whether ``floor`` belongs to one reading and not to the run."""


def loads(facts: JobOutput, run: Run) -> tuple[Load, ...]:
    """Return what the record of a run shows of others, as far as it can slow the run down."""
    found: dict[LoadKind, list[Load]] = defaultdict(list)
    for busy, evidence in facts.events_of(Busy):
        for load in _of_node(busy, evidence, facts, run):
            found[load.cause].append(load)
    if not facts.events_of(Busy):
        for load in _not_recorded(facts):
            found[load.cause].append(load)
    return tuple(_of_run(each) for each in found.values())


def _of_run(found: Sequence[Load]) -> Load:
    """Return one load of several nodes: they wait for each other, so the busiest decides."""
    busiest = min(found, key=lambda load: load.floor)
    if busiest.most_waiting is None:
        return busiest
    most = max(load.most_waiting or 0.0 for load in found)
    return replace(busiest, most_waiting=most, apart=min(load.apart for load in found))


def _of_reading(found: Iterable[Load], reading: Reading) -> Iterator[Load]:
    """Yield what slowed one reading down, by its own waiting for CPUs if that is known."""
    waited = reading.cpu_wait_share
    for load in found:
        if load.most_waiting is None or waited is None:
            yield load
            continue
        lost = min(waited, load.most_waiting) * _TUNED["drag"]
        if lost >= _TUNED["lost"] or load.apart < 1:
            floor = max(1 - lost, 0.0) * load.apart
            yield replace(load, floor=floor, pause_us=0.0, exact=load.apart == 1)


def excused(judged: Iterable[Judged], found: Sequence[Load]) -> list[Judged]:
    """Return the readings; those for which ``found`` accounts are ``unknown``."""
    return [
        replace(each, verdict=Verdict.UNKNOWN) if _accounted(each, found) else each
        for each in judged
    ]


def _accounted(judged: Judged, found: Sequence[Load]) -> bool:
    if judged.verdict is Verdict.DEGRADED:
        share = _ratio(judged, judged.bound)
        measured_us = judged.reading.measured_us
        alone_us = math.inf if measured_us is None else share * measured_us
        ours = list(_of_reading(found, judged.reading))
        return accounts_for(ours, share, _time_us(judged), alone_us)
    if judged.verdict is Verdict.IMPOSSIBLE and judged.limit:
        slowed = [load for load in found if load.slows_limit]
        return accounts_for(slowed, 1 / _ratio(judged, judged.limit))
    return False


def accounts_for(
    found: Sequence[Load],
    share: float,
    operation_us: float = math.inf,
    measurement_us: float = math.inf,
) -> bool:
    """Whether loads can bring a rate down to ``share`` of what it should be.

    The times are those that one operation and the whole measurement should take.
    """
    if not found or operation_us <= 0 or measurement_us <= 0:
        return False
    longer = math.prod(1 / load.floor if load.floor else math.inf for load in found)
    longer += sum(load.wait_us for load in found) / operation_us
    longer += sum(load.pause_us for load in found) / measurement_us
    return share >= (1.0 if all(load.exact for load in found) else _TUNED["margin"]) / longer


def _ratio(judged: Judged, reference: float) -> float:
    """Return how good a reading is, over a reference of its unit."""
    good, bad = judged.reading.value, reference
    if judged.reading.kind == "latency_us":
        good, bad = bad, good
    return good / bad if bad else math.inf


def _time_us(judged: Judged) -> float:
    """Return the longest time that the operation of a reading takes within its band."""
    if judged.reading.kind == "latency_us" or not judged.bound:
        return judged.bound or math.inf
    return judged.reading.nbytes / judged.bound * 1e-3


def _of_node(busy: Busy, evidence: Evidence, facts: JobOutput, run: Run) -> Iterator[Load]:
    through_host = run.memory != "device" or "H" in run.buffers
    lost = _lost_to_others(busy) + busy.steal  # to others and to the hypervisor
    together = max(1 - lost, 0.0)
    memory = _memory_share(busy, busy.node_others) if through_host else 1.0
    in_the_mean = lost >= _TUNED["lost"] or memory < 1
    if in_the_mean or _waited(facts):
        # Ranks that do not wait leave the others fewer CPUs.
        running = 2 if (run.nodes or 1) == 1 else 1
        beside = min(busy.node_others, max(busy.node_cpus - running, 0))
        apart = _memory_share(busy, beside) if through_host else 1.0
        yield Load(
            *("cpu-busy", together * memory, _cpu_summary(busy, lost), evidence),
            slows_limit=in_the_mean and run.copies is not None,
            starves=busy.own < _TUNED["starved"] * (busy.own + lost),
            pause_us=_TUNED["pause-us"] if lost >= _TUNED["lost"] else 0.0,
            most_waiting=_most_waiting(busy),
            apart=apart * (1.0 if busy.steal < _TUNED["lost"] else max(1 - busy.steal, 0.0)),
        )
    if busy.throttled >= _TUNED["lost"]:
        yield Load(
            "cpu-quota",
            busy.own / (busy.own + busy.throttled),
            f"a cgroup of the job may use {busy.quota or 0:.3g} CPUs, and kept its tasks on"
            f" {busy.host} from using {busy.throttled:.2g} more",
            evidence,
            slows_limit=run.copies is not None,
            starves=busy.own < _TUNED["starved"] * (busy.own + busy.throttled),
        )
    if run.memory != "host":
        yield from _of_gpus(busy, _used_gpus(busy, facts), evidence)
    if (run.nodes or 1) > 1:
        yield from _of_ports(busy, evidence, _explained(facts, run))


def _of_ports(busy: Busy, evidence: Evidence, explained: float | None) -> Iterator[Load]:
    for nic in busy.nics:
        share = nic.gb_per_s / nic.link_gb_per_s if nic.link_gb_per_s else 0.0
        if share >= _TUNED["nic-share"]:
            summary = (
                f"{nic.name} of {busy.host} carried {nic.gb_per_s:.3g} of"
                f" {nic.link_gb_per_s:.3g} GB/s before the job sent anything"
            )
            yield Load("nic-busy", max(1 - share, 0.5), summary, evidence)
    carried = sum(nic.during_gb_per_s for nic in busy.nics)
    links = sum(nic.link_gb_per_s for nic in busy.nics)
    if explained is not None and links and carried - explained >= _TUNED["nic-share"] * links:
        summary = (
            f"the ports of {busy.host} carried {carried:.3g} GB/s while the job ran; it moved at"
            f" most {explained:.3g}"
        )
        yield Load("nic-busy", max(1 - (carried - explained) / links, 0.5), summary, evidence)


def _explained(facts: JobOutput, run: Run) -> float | None:
    """Return the most GB/s that a run can have sent from a node, by its readings; None if unknown.

    Between two readings it cannot have sent faster than the faster of them.
    """
    large = (each for each in facts.readings if each.nbytes >= LARGE_BYTES)
    rates = [each for each in large if each.kind in ("bw", "busbw")]
    if not rates or not run.ranks or run.ranks < 2:
        return None
    top = max(rates, key=lambda each: each.value)
    per_node = run.ranks / (run.nodes or 1)
    operation = top.operation or run.bench
    # A ring crosses the network once, a tree at most as often as its ranks receive.
    alone = top.kind == "busbw" and operation not in ("alltoall", "sendrecv")
    times = run.ranks / (run.ranks - 1) if alone else per_node
    return top.value * times * _TUNED["headers"]


def _of_gpus(busy: Busy, used: dict[int, BusyGpu], evidence: Evidence) -> Iterator[Load]:
    """Yield what slows the GPUs of a run down.

    The clock of a GPU that others use follows their load, so it does not count as a fault.
    """
    by_gpu = {gpu.gpu: gpu for gpu in busy.gpus}
    active = [p for p in busy.gpu_processes if p.gpu in by_gpu and _may_be_active(by_gpu[p.gpu])]
    shared = Counter(each.gpu for each in active if each.gpu in used)
    clocks = {gpu.gpu: gpu.mhz / gpu.max_mhz for gpu in used.values() if _is_throttled(gpu)}
    if shared:
        floor = min(clocks.get(gpu, 1.0) / (1 + count) for gpu, count in shared.items())
        ours = [each for each in active if each.gpu in shared]
        summary = _gpu_summary(busy, ours, used)
        for gpu in (used[number] for number in shared if number in clocks):
            summary += f"; {_throttle_summary(busy, gpu)}"
        wait_us = _TUNED["turn-us"] * max(shared.values())
        yield Load("gpu-busy", floor, summary, evidence, wait_us=wait_us)
    for number in clocks.keys() - shared.keys():
        summary = _throttle_summary(busy, used[number])
        if active:
            named = ", ".join(f"{each} on GPU {each.gpu}" for each in active[:3])
            summary += f", while others use the node: {named}"
        yield Load("gpu-throttled", clocks[number], summary, evidence)


def _is_throttled(gpu: BusyGpu) -> bool:
    return 0 < gpu.mhz < _TUNED["slow-clock"] * gpu.max_mhz


def _lost_to_others(busy: Busy) -> float:
    """Return how many ranks wait, on average, for others."""
    waiting = busy.waiting if busy.waiting is not None else busy.job_pressure
    if waiting is None:
        # The kernel does not count. CPUs that are not full let everyone run.
        full = busy.own + busy.others >= _TUNED["full"] * busy.cpus
        return busy.others if full else 0.0
    # More ranks than CPUs wait for each other, others or not.
    by_ranks = max(busy.own + waiting - busy.cpus, 0.0)
    return max(min(waiting - by_ranks, _TUNED["queued"] * busy.others), 0.0)


def _most_waiting(busy: Busy) -> float:
    """Return the largest part of its time for which others can have kept a reading waiting.

    Ranks and their threads that share too few CPUs wait for each other in every reading: there
    others account for at most the average. Otherwise, all waiting is for others, whenever it is.
    """
    lost = _lost_to_others(busy)
    return 1.0 if 0 < (busy.waiting or 0.0) <= 2 * lost else min(lost, 1.0)


def _waited(facts: JobOutput) -> list[Reading]:
    """Return the readings whose ranks waited for CPUs."""
    return [each for each in facts.readings if (each.cpu_wait_share or 0.0) >= _TUNED["lost"]]


def _not_recorded(facts: JobOutput) -> Iterator[Load]:
    """Yield the load of readings with waiting ranks, if what they waited for was not recorded.

    They waited for other programs if each rank could have its own CPU.
    """
    waited = _waited(facts)
    sets: dict[str, list[frozenset[int]]] = defaultdict(list)
    try:
        for rank, _ in facts.events_of(Rank):
            sets[rank.host].append(frozenset(parse_cpu_list(rank.cpus)))
    except ValueError:  # a list of CPUs that cannot be read shows no room for each rank
        return
    crowded = any(
        sum(each <= cpus for each in of_host) > len(cpus)
        for of_host in sets.values()
        for cpus in of_host
    )
    if waited and sets and not crowded:
        worst = max(waited, key=lambda each: each.cpu_wait_share or 0.0)
        summary = "the ranks waited for CPUs; what else used them was not recorded"
        evidence = worst.evidence or Evidence("", 0, "")
        yield Load("cpu-busy", 1.0, summary, evidence, most_waiting=1.0)


def _memory_share(busy: Busy, others: float) -> float:
    if not busy.node_cpus or others < _TUNED["streaming"] * busy.node_cpus:
        return 1.0
    return max(busy.own / (busy.own + others), _TUNED["saturated"])


def _cpu_summary(busy: Busy, lost: float) -> str:
    text = f"other programs use {busy.others:.3g} of the {busy.cpus} CPUs of the ranks"
    if busy.node_cpus > busy.cpus:
        text += f" and {busy.node_others:.3g} of the {busy.node_cpus} CPUs of {busy.host}"
    text += f"; {lost:.2g} ranks wait for them on average"
    if busy.wait is not None:
        text += f", one for {busy.wait:.0%} of its time"
    if busy.steal >= _TUNED["lost"] * busy.cpus:
        text += f"; the hypervisor takes {busy.steal:.3g} CPUs"
    if busy.runnable and busy.runnable > busy.node_cpus:
        text += f"; {busy.runnable:.2g} tasks were ready for its {busy.node_cpus} CPUs"
    named = ", ".join(f"{each} ({each.cpus:.2g} CPUs)" for each in busy.processes)
    return f"{text}: {named}" if named else text


def _used_gpus(busy: Busy, facts: JobOutput) -> dict[int, BusyGpu]:
    """Return the GPUs of a node that the run uses; all if the output does not show which."""
    buses = {d.bus for d in facts.devices.values() if ":" in d.bus}
    visible: set[str] = set()
    for place, _ in facts.events_of(RankPlace):
        buses |= {place.device} if place.device else set()
        visible |= set((place.visible or "").split(",")) - {""}
    by_bus = {g.gpu: g for g in busy.gpus if any(_same_bus(g.bus, bus) for bus in buses)}
    by_number = {g.gpu: g for g in busy.gpus if str(g.gpu) in visible}
    return by_bus or by_number or {g.gpu: g for g in busy.gpus}


def _same_bus(one: str, other: str) -> bool:
    """Whether two PCI addresses agree: tools write ``00000000:06:00.0`` and ``0000:00:06``."""
    parts = [re.split(r"[:.]", each.lower()) for each in (one, other)]
    return parts[0][-3:] == parts[1][-3:] or parts[0][-3:-1] == parts[1][-2:]


def _may_be_active(gpu: BusyGpu) -> bool:
    """Whether a process on a GPU used it, or nothing shows that it was idle."""
    if gpu.percent >= _TUNED["active-percent"] or gpu.link_gb_per_s is None:
        return True
    return gpu.link_gb_per_s >= _TUNED["active-gb-per-s"]


def _gpu_summary(busy: Busy, active: Sequence[GpuProcess], used: dict[int, BusyGpu]) -> str:
    text = "; ".join(
        f"{each} on GPU {each.gpu} of {busy.host} ({each.mib:.0f} MiB)" for each in active[:3]
    )
    for gpu in dict.fromkeys(each.gpu for each in active[:3]):
        rate = used[gpu].link_gb_per_s
        moved = "traffic not read" if rate is None else f"{rate:.3g} GB/s over NVLink"
        text += f"; GPU {gpu} before the job: {used[gpu].percent:.0f} % busy, {moved}"
    return text


def _throttle_summary(busy: Busy, gpu: BusyGpu) -> str:
    reasons = ", ".join(name for bit, name in REASONS.items() if gpu.throttle & bit)
    return (
        f"GPU {gpu.gpu} of {busy.host} ran at {gpu.mhz:.0f} of {gpu.max_mhz:.0f} MHz:"
        f" {reasons or 'no reason given'}"
    )
