# SPDX-License-Identifier: MIT
"""Detect the scheduler of a machine, its queue, its nodes and its launcher."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from busbar.detect.reader import Reader
from busbar.parse.machine import schedulers
from busbar.parse.machine.schedulers import Queue
from busbar.site.links import Name
from busbar.slurm.nodes import Hardware, parse_hardware

_IS_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True)
class DetectedScheduler:
    """The scheduler in ReFrame's words; ``local`` if no tool of one answers."""

    scheduler: str = "local"
    launcher: str = "mpirun"
    partition: str = "node"
    queue: str = ""
    """The scheduler's name of the queue; empty if it has none."""
    nodes: int = 1
    cpus: int | None = None
    """Logical CPUs of this node."""

    @property
    def access(self) -> tuple[str, ...]:
        """The option that submits to the queue."""
        option = {"slurm": "--partition={}", "flux": "-q{}"}.get(self.scheduler, "-q {}")
        return (option.format(self.queue),) if self.queue and self.scheduler != "local" else ()


def scheduler(reader: Reader) -> DetectedScheduler:
    """Return the scheduler whose tools answered."""
    nodes = reader.read("scontrol", parse_hardware)
    sinfo = reader.read("sinfo", schedulers.parse_sinfo)
    if nodes or sinfo or "scontrol" in reader.outputs.text:
        return _slurm(nodes or (), sinfo or ())
    if queues := reader.read("flux resource list", schedulers.parse_flux):
        return _of("flux", "flux-run", queues)
    if pbs := reader.read("pbsnodes", schedulers.parse_pbsnodes):
        return _of("torque" if pbs.torque else "pbs", "mpiexec", pbs.queues)
    return DetectedScheduler()


def _slurm(nodes: tuple[Hardware, ...], queues: tuple[Queue, ...]) -> DetectedScheduler:
    own = nodes[0].partitions[0] if nodes and nodes[0].partitions else ""
    chosen = next(
        (queue for queue in queues if queue.name == own or (not own and queue.default)),
        queues[0] if queues and not own else None,
    )
    queue = own or (chosen.name if chosen else "")
    return DetectedScheduler(
        "slurm",
        "srun",
        site_name(queue),
        queue,
        max(1, chosen.nodes) if chosen else 1,
        nodes[0].cpus if nodes else None,
    )


def _of(name: str, launcher: str, queues: tuple[Queue, ...]) -> DetectedScheduler:
    largest = max(queues, key=lambda queue: queue.nodes)
    return DetectedScheduler(
        name, launcher, site_name(largest.name), largest.name, max(1, largest.nodes)
    )


def site_name(queue: str) -> str:
    """Return the scheduler's name of the queue if it is valid in a site, else ``node``."""
    try:
        return _IS_NAME.validate_python(queue.lower())
    except ValidationError:
        return "node"
