# SPDX-License-Identifier: MIT
"""Detect the scheduler of a machine, its queue, its nodes and its launcher."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from busbar.detect.reader import Reader
from busbar.site.links import Name
from busbar.slurm.nodes import Hardware, Queue, parse_hardware, parse_sinfo

_IS_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True)
class DetectedScheduler:
    """The scheduler in ReFrame's words; ``local`` if no tool of Slurm answers."""

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
        return (f"--partition={self.queue}",) if self.queue else ()


def scheduler(reader: Reader) -> DetectedScheduler:
    """Return Slurm if its tools answered."""
    nodes = reader.read("scontrol", parse_hardware)
    sinfo = reader.read("sinfo", parse_sinfo)
    if nodes or sinfo or "scontrol" in reader.outputs.text:
        return _slurm(nodes or (), sinfo or ())
    return DetectedScheduler()


def _slurm(nodes: tuple[Hardware, ...], queues: tuple[Queue, ...]) -> DetectedScheduler:
    own = nodes[0].partitions[0] if nodes and nodes[0].partitions else ""
    chosen = next(
        (queue for queue in queues if queue.name == own or (not own and queue.default)),
        queues[0] if queues and not own else None,
    )
    queue = own or (chosen.name if chosen else "")
    count = max(1, chosen.nodes) if chosen else 1
    cpus = nodes[0].cpus if nodes else None
    return DetectedScheduler("slurm", "srun", site_name(queue), queue, count, cpus)


def site_name(queue: str) -> str:
    """Return the scheduler's name of the queue if it is valid in a site, else ``node``."""
    try:
        return _IS_NAME.validate_python(queue.lower())
    except ValidationError:  # Slurm permits characters that a name in site.yaml may not have
        return "node"
