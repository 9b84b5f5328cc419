# SPDX-License-Identifier: MIT
"""Whether other programs account for a slow copy; `busbar.engine.busy` decides."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from busbar.gate.passive import Facts
from busbar.gate.sysfs import PciGpuState
from busbar.parse import numbers
from busbar.parse.busy import Busy, Gpu, GpuProcess
from busbar.parse.machine.nvidia_xml import SmiReport

_TICKS = os.sysconf("SC_CLK_TCK")
_ACTIVE_PERCENT = 10
_THROTTLED = 0x20
"""Heat, as a bit of ``clocks_throttle_reasons.active``: which limit it is does not matter."""


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
    with suppress(OSError):
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

        Links share the memory of the host and switches, so that a program on one GPU slows the
        copies of others as well: beside one that filled the host link of GPU 0, an H100 lost 8 %
        on the link of GPU 1.
        """
        if self.nvidia and (self.facts.smi is None or self.after is None):
            why = self.facts.smi_problem or "nvidia-smi failed"
            return f"it is not known whether others use the GPUs: {why}"
        # Only a slow reading needs these.
        from busbar.engine.busy import loads  # noqa: PLC0415
        from busbar.engine.job_output import JobOutput  # noqa: PLC0415
        from busbar.engine.reading import Evidence  # noqa: PLC0415
        from busbar.engine.run import Run  # noqa: PLC0415

        output = JobOutput(events=[(self._record(), Evidence("", 0, ""))])
        found = loads(output, Run(nodes=1, memory="device", buffers=buffers))
        return "; ".join(load.summary for load in found)

    def _record(self) -> Busy:
        reports = [report for report in (self.facts.smi, self.after) if report]
        on_bus = self.facts.system.gpus if self.facts.system else ()
        rows, processes = [], {}
        for index in range(max([len(on_bus), *(len(report.gpus) for report in reports)])):
            states = [report.gpus[index] for report in reports if index < len(report.gpus)]
            clocks = [gpu.clocks for gpu in states if gpu.limits and gpu.clocks]
            # The last report counts our own copies as well.
            percent = (states[0].percent if states else _amd(on_bus, index)) or 0.0
            rows.append(
                Gpu(
                    index,
                    states[0].bus_id if states else "",
                    percent,
                    min((now for now, _ in clocks), default=0.0),
                    max((most for _, most in clocks), default=0.0),
                    _THROTTLED if clocks else 0,
                )
            )
            for process in (each for gpu in states for each in gpu.processes):
                processes[index, process.pid] = GpuProcess(process.pid, "", process.name, index)
            if percent >= _ACTIVE_PERCENT:  # a container does not see the processes of others
                processes.setdefault((index, 0), GpuProcess(0, "", "not listed", index))
        for pid in {*(self.facts.system.kfd_pids if self.facts.system else ()), *self.kfd_pids}:
            processes[0, pid] = GpuProcess(pid, "", "on a GPU of AMD", 0)
        seconds = max(self.end.at - self.start.at, 1e-3)
        own = (self.end.own - self.start.own) / seconds
        others = max((self.end.all - self.start.all) / seconds - own, 0.0)
        cpus = os.cpu_count() or 1
        return Busy(
            *("this node", seconds, cpus, own, others, cpus, others),
            gpus=tuple(rows),
            gpu_processes=tuple(processes.values()),
        )


def _amd(gpus: Sequence[PciGpuState], index: int) -> float:
    return (gpus[index].percent or 0.0) if index < len(gpus) else 0.0
