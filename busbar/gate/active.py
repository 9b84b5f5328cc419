# SPDX-License-Identifier: MIT
"""Move bytes over every link between GPUs and to the host, and judge the readings."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from busbar.gate.bounded import Output, Task, finish, program
from busbar.gate.copies import CopyReading, GpuDevice, between_gpus, between_host_and_gpu
from busbar.gate.engine import Cuda, GpuEngine, Hip
from busbar.gate.findings import GateFinding, compared, unknown
from busbar.gate.passive import SMI, Facts, parsed
from busbar.gate.site import CopyBand, NodeKind
from busbar.gate.sysfs import kfd_pids
from busbar.parse import numbers
from busbar.parse.machine.nvidia_xml import SmiReport, parse_report
from busbar.verdict import Verdict

_TICKS = os.sysconf("SC_CLK_TCK")
# The floors of busbar.engine.busy, which has the measurements behind them.
_ACTIVE_PERCENT = 10
_FULL = 0.9
"""Share of the CPUs that are in use, from which on programs wait for one."""
_WAITING = 0.1
"""CPUs that others use then."""
_STREAMING = 0.1
"""Share of busy CPUs above which programs can reduce the host's memory bandwidth."""
_SLOW_CLOCK = 0.9
"""Share of the highest clock."""


@dataclass(frozen=True)
class CpuClock:
    """CPU time that was used until one moment, in seconds."""

    at: float
    all: float
    """By all programs."""
    own: float
    """By this one and its children that have ended."""


def cpu_clock(root: Path = Path("/")) -> CpuClock:
    """Read the clocks."""
    used = 0
    with suppress(OSError):  # outside Linux or in a sandbox: children count alone
        words = (root / "proc/stat").read_text().partition("\n")[0].split()[1:4]
        used = sum(numbers.count(word) for word in words)
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(each.ru_utime + each.ru_stime for each in usages)
    return CpuClock(time.monotonic(), used / _TICKS, own)


@dataclass(frozen=True)
class Others:
    """What else used the node while it was measured."""

    facts: Facts
    """Before."""
    after: SmiReport | None
    """NVIDIA's GPUs after; None if that is not known."""
    nvidia: bool
    start: CpuClock
    end: CpuClock
    kfd_pids: tuple[int, ...] = ()
    """Programs that use GPUs of AMD, after."""

    def slowed(self, buffers: str) -> str:
        """Return what can slow copies of a kind; empty if nobody else uses the node.

        Links share host memory and switches, so a program on one GPU also slows the copies of
        others: beside one that filled the host link of GPU 0, an H100 lost 8 %
        on the link of GPU 1.
        """
        if self.nvidia and (self.facts.smi is None or self.after is None):
            why = self.facts.smi_problem or "nvidia-smi failed"
            return f"unknown whether others use the GPUs: {why}"
        return "; ".join(filter(None, (self._cpus(buffers), *self._gpus())))

    def _cpus(self, buffers: str) -> str:
        """Return how others use the CPUs, if they are full or fill the memory of the host."""
        seconds = max(self.end.at - self.start.at, 1e-3)
        own = (self.end.own - self.start.own) / seconds
        others = max((self.end.all - self.start.all) / seconds - own, 0.0)
        cpus = os.cpu_count() or 1
        full = own + others >= _FULL * cpus and others >= _WAITING
        if not full and not ("H" in buffers and others >= _STREAMING * cpus):
            return ""
        return f"other programs use {others:.3g} of the {cpus} CPUs of this node"

    def _gpus(self) -> Iterator[str]:
        """Yield who uses a GPU, and which GPUs are slow by heat or power."""
        reports = [report for report in (self.facts.smi, self.after) if report]
        on_bus = self.facts.system.gpus if self.facts.system else ()
        count = max([len(on_bus), *(len(report.gpus) for report in reports)])
        users: dict[tuple[int, int], str] = {}
        slow = {}
        for index in range(count):
            states = [report.gpus[index] for report in reports if index < len(report.gpus)]
            # The last report counts our own copies as well.
            percent = states[0].percent if states else on_bus[index].percent
            for process in (each for gpu in states for each in gpu.processes):
                users[index, process.pid] = f"PID {process.pid} ({process.name})"
            if (percent or 0.0) >= _ACTIVE_PERCENT and not any(gpu == index for gpu, _ in users):
                users[index, 0] = f"a program that is not listed ({percent:.0f} % busy)"
            for gpu in states:  # a container does not see the processes of others
                if gpu.limits and gpu.clocks and 0 < gpu.clocks[0] < _SLOW_CLOCK * gpu.clocks[1]:
                    slow[index] = f"at {gpu.clocks[0]:.0f} of {gpu.clocks[1]:.0f} MHz"
        for pid in {*(self.facts.system.kfd_pids if self.facts.system else ()), *self.kfd_pids}:
            users[0, pid] = f"PID {pid}"
        yield from (f"{who} uses GPU {gpu}" for (gpu, _), who in users.items())
        yield from (f"GPU {gpu} runs {how}" for gpu, how in slow.items())


_SMI_S = 5.0
_PAUSE_S = 2.0
"""Time between two readings of a slow link: a shorter disturbance is not a fault."""


@dataclass(frozen=True)
class Plan:
    """What can be measured on this node."""

    devices: tuple[GpuDevice, ...]
    make: Callable[[], GpuEngine]
    left_out: tuple[GateFinding, ...] = ()
    """Why some GPUs are not measured."""


def plan(facts: Facts, chosen: Sequence[int]) -> Plan:
    """Return the GPUs to measure: all or the ``chosen`` ones, in their order on the bus."""
    if facts.smi:
        left_out = []
        devices = []
        for index, gpu in enumerate(facts.smi.gpus):
            why = "the driver lost the GPU" if gpu.lost else "MIG divides it" if gpu.mig else ""
            if why:
                left_out.append(unknown("host_copy", why, f"gpu{index}"))
            elif not chosen or index in chosen:
                devices.append(GpuDevice(index, gpu.bus_id))
        return Plan(tuple(devices), Cuda, tuple(left_out))
    on_bus = facts.system.gpus if facts.system else ()
    devices = [
        GpuDevice(index, gpu.address)
        for index, gpu in enumerate(on_bus)
        if not chosen or index in chosen
    ]
    nvidia = any(gpu.vendor == "nvidia" for gpu in on_bus)
    return Plan(tuple(devices), Cuda if nvidia else Hip)


def measure(
    facts: Facts, chosen: Sequence[int], node: NodeKind | None, seconds: float
) -> Iterator[GateFinding]:
    """Measure and yield one finding for each direction of each link."""
    todo = plan(facts, chosen)
    yield from todo.left_out
    if not todo.devices:
        return
    start = cpu_clock()
    readings, problems = run(todo, seconds)
    on_bus = facts.system.gpus if facts.system else ()
    count = len(facts.smi.gpus if facts.smi else on_bus)

    def judge(each: Sequence[CopyReading]) -> list[CopyJudgement]:
        return [CopyJudgement(reading, judge_copy(reading, node, count)) for reading in each]

    judged = judge(readings)
    if slow := [each for each in judged if each.is_slow]:
        second = _again(todo, slow, seconds)
        readings += second
        judged = [*_better(judged, judge(second))]
    if any(each.is_slow for each in judged):
        after = parsed(_smi_now(), parse_report)[0] if facts.smi else None
        others = Others(facts, after, todo.make is not Hip, start, cpu_clock(), kfd_pids())
        judged = [excused(each, others) for each in judged]
    yield from (each.finding for each in judged)
    yield from _data(readings)
    yield from problems


@dataclass(frozen=True)
class CopyJudgement:
    """A reading with its finding."""

    reading: CopyReading
    finding: GateFinding

    @property
    def is_slow(self) -> bool:
        """Whether it is below its band."""
        return self.finding.verdict is Verdict.DEGRADED


def _again(todo: Plan, slow: Sequence[CopyJudgement], seconds: float) -> list[CopyReading]:
    """Measure the GPUs of slow readings once more."""
    time.sleep(_PAUSE_S)
    involved = {each.reading.gpu for each in slow} | {each.reading.peer for each in slow}
    devices = tuple(device for device in todo.devices if device.index in involved)
    return run(replace(todo, devices=devices), seconds)[0]


def _better(
    judged: Sequence[CopyJudgement], second: Sequence[CopyJudgement]
) -> Iterator[CopyJudgement]:
    """Yield the better reading of each slow link; one that was not confirmed is ``unknown``."""
    again = {each.reading.link: each for each in second if each.reading.gb_per_s}
    for each in judged:
        other = again.get(each.reading.link)
        if not each.is_slow:
            yield each
        elif other is None:
            note = "below its band once, but not measured again"
            finding = replace(each.finding, verdict=Verdict.UNKNOWN, note=note)
            yield replace(each, finding=finding)
        else:
            yield max(each, other, key=lambda one: one.reading.gb_per_s or 0.0)


def run(todo: Plan, seconds: float) -> tuple[list[CopyReading], list[GateFinding]]:
    """Return the readings, and a finding for each link without a reading."""
    lock = os.memfd_create("busbar-gate")
    tasks: list[tuple[Task[CopyReading], list[tuple[int, int | None]]]] = []
    for device in todo.devices:
        task = Task[CopyReading](partial(between_host_and_gpu, todo.make, device, lock), seconds)
        tasks.append((task, [(device.index, None)]))
    if len(todo.devices) > 1:
        task = Task[CopyReading](partial(between_gpus, todo.make, todo.devices, lock), seconds)
        indices = [device.index for device in todo.devices]
        tasks.append((task, [(a, b) for a in indices for b in indices if a != b]))
    os.close(lock)
    finish([task for task, _ in tasks])
    readings: list[CopyReading] = []
    problems: list[GateFinding] = []
    for task, links in tasks:
        readings += task.outcome.values
        for gpu, peer in links:
            got = sum((each.gpu, each.peer) == (gpu, peer) for each in task.outcome.values)
            if got < (2 if peer is None else 1):
                why = task.outcome.problem or "no reading"
                check = "host_copy" if peer is None else "peer_copy"
                problems.append(unknown(check, why, _where(gpu, peer)))
    return readings, problems


def judge_copy(reading: CopyReading, node: NodeKind | None, found: int) -> GateFinding:
    """Judge one reading by limit and band of the site. ``found``: how many GPUs the node has."""
    check = "host_copy" if reading.peer is None else "peer_copy"
    where = _where(reading.gpu, reading.peer, reading.buffers)
    rate = reading.gb_per_s
    if rate is None:
        return unknown(check, reading.note, where)
    finding = GateFinding(check, Verdict.UNJUDGED, where, f"{rate:.4g} GB/s", gb_per_s=rate)
    band = _band(reading, node, found)
    if band is None:
        return replace(finding, note="the site does not describe these GPUs")
    note = band.note
    if band.low is not None and not reading.direct:
        note = "without direct access between the GPUs"
    return replace(finding, verdict=band.verdict(rate), band=band.text, note=note)


def _band(reading: CopyReading, node: NodeKind | None, found: int) -> CopyBand | None:
    """Return the band of a link, if the GPUs are numbered as the site states."""
    gpus = node.gpus if node else None
    if node is None or gpus is None or gpus.accelerators < gpus.count:
        return None
    if found != gpus.count and not (gpus.uniform and found < gpus.count):
        return None
    peer = reading.gpu if reading.peer is None else reading.peer
    return node.copies.get(f"{reading.buffers} {reading.gpu % gpus.count} {peer % gpus.count}")


def excused(each: CopyJudgement, others: Others) -> CopyJudgement:
    """Return the judgement; a slow reading is ``unknown`` if others use the node."""
    why = others.slowed(each.reading.buffers) if each.is_slow else ""
    if not why:
        return each
    return replace(each, finding=replace(each.finding, verdict=Verdict.UNKNOWN, note=why))


def _data(readings: Sequence[CopyReading]) -> Iterator[GateFinding]:
    checked = [each for each in readings if each.gb_per_s is not None and each.buffers != "H D"]
    wrong = [each for each in checked if each.wrong]
    for each in wrong:
        where = _where(each.gpu, each.peer, each.buffers)
        yield compared("copy_data", False, where, f"{each.wrong} wrong bytes", "0")
    if checked and not wrong:
        yield compared("copy_data", True, "", "0 wrong bytes", "0")


def _where(gpu: int, peer: int | None, buffers: str = "") -> str:
    if peer is not None:
        return f"gpu{gpu}->gpu{peer}"
    return {"H D": f"host->gpu{gpu}", "D H": f"gpu{gpu}->host"}.get(buffers, f"gpu{gpu}")


def _smi_now() -> Task[Output]:
    task = program(SMI, _SMI_S)
    finish([task])
    return task
