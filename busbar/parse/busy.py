# SPDX-License-Identifier: MIT
"""What ``busy.awk`` recorded of other programs on a node while a job ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

_Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
_Figure = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=200)]


@dataclass(frozen=True)
class BusyProcess:
    """A program of others."""

    pid: _Count
    user: _Text
    """Empty if it ended before it was looked up."""
    command: _Text
    """The program and its first argument; other arguments may be secret and are not recorded."""

    def __str__(self) -> str:
        return f"PID {self.pid} {self.user or 'of an unknown user'} {self.command}"


@dataclass(frozen=True)
class CpuProcess(BusyProcess):
    """One that used CPUs."""

    cpus: _Figure
    """CPU seconds per second."""


@dataclass(frozen=True)
class GpuProcess(BusyProcess):
    """One that has a context on a GPU."""

    gpu: _Count
    mib: _Figure = 0.0


@dataclass(frozen=True)
class BusyGpu:
    """One GPU of the node."""

    gpu: _Count
    """Its number in nvidia-smi, or among the GPUs of amdkfd."""
    bus: _Text
    percent: _Figure
    """Utilisation before the job used it."""
    mhz: _Figure
    """The lowest SM clock while a limit of heat or power was active; else 0. Not read on AMD."""
    max_mhz: _Figure
    throttle: _Count
    """The limits that were active: bits of ``clocks_throttle_reasons.active``."""
    link_gb_per_s: _Figure | None = None
    """NVLink traffic of others, before the job used it; None if not read."""


@dataclass(frozen=True)
class BusyNic:
    """A network port that carried data."""

    name: _Text
    gb_per_s: _Figure
    """What it carried before the job sent anything, in the busier direction."""
    link_gb_per_s: _Figure
    during_gb_per_s: _Figure = 0.0
    """What it carried from then on, the job's data included."""


@dataclass(frozen=True)
class Busy:
    """One node; CPU figures are CPU seconds per second, over ``seconds``."""

    host: _Text
    seconds: _Figure
    cpus: _Count
    """How many CPUs the ranks may use."""
    own: _Figure
    """What the ranks and their launcher used."""
    others: _Figure
    """What other programs used of the CPUs that the ranks may use."""
    node_cpus: _Count
    node_others: _Figure
    """What other programs used of all CPUs."""
    steal: _Figure = 0.0
    """What the hypervisor took from the CPUs that the ranks may use."""
    wait: _Figure | None = None
    """The share of its time that the rank worst off was ready to run and had no CPU."""
    waiting: _Figure | None = None
    """How many ranks were ready to run and had no CPU, on average; threads count."""
    switches: _Count = 0
    """How often ranks were taken off a CPU."""
    job_pressure: _Figure | None = None
    """The share of the time in which some task of the job's cgroup waited for a CPU."""
    quota: _Figure | None = None
    """The CPUs that a cgroup of the job may use; None without a limit."""
    throttled: _Figure = 0.0
    """CPUs that tasks of that cgroup were kept from using by the limit, on average."""
    runnable: _Figure | None = None
    """Tasks that were ready to run, mean of the samples."""
    processes: tuple[CpuProcess, ...] = ()
    """The three that used most, but none below one percent of a CPU."""
    gpus: tuple[BusyGpu, ...] = ()
    gpu_processes: tuple[GpuProcess, ...] = ()
    nics: tuple[BusyNic, ...] = ()
