# SPDX-License-Identifier: MIT
"""Whether other programs account for a slow copy."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from busbar.gate.passive import Facts
from busbar.parse import numbers
from busbar.parse.machine.nvidia_xml import SmiReport

_TICKS = os.sysconf("SC_CLK_TCK")
# The floors of busbar.engine.busy, which has the measurements behind them.
_ACTIVE_PERCENT = 10
_FULL = 0.9
"""Share of the CPUs that are in use, from which on programs wait for one."""
_WAITING = 0.1
"""CPUs that others use then."""
_STREAMING = 0.1
"""Share of the CPUs whose programs can take bandwidth of the memory of the host."""
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
