# SPDX-License-Identifier: MIT
"""Describe the Slurm cluster of this host: the partitions that its site needs, and a node of each
kind, which a short job describes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from busbar import mpi
from busbar.data import PYTHON
from busbar.detect.detected import remark
from busbar.detect.gather import Outputs, gather
from busbar.detect.reader import Reader
from busbar.errors import BusbarError
from busbar.program import NO_ANSWER
from busbar.site.delivery import MpiFamily
from busbar.site.links import Name
from busbar.slurm.client import Slurm
from busbar.slurm.nodes import Hardware, Queue, parse_hardware, parse_sinfo
from busbar.slurm.steps import mpi_types, on_a_node
from busbar.terminal import stdout
from busbar.words import grouped

# ---- Detect the scheduler of a machine, its queue, its nodes and its launcher
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


# ---- The cluster
_JOB_S = 90
"""For a job on an idle node, also if the node has to load Python over a busy network."""
_START_S = 20
"""How long Slurm may take to start it."""


@dataclass(frozen=True)
class Group:
    """The nodes that one partition of a site has: nodes of one kind in a partition of Slurm."""

    queue: str
    """The partition of Slurm."""
    nodes: tuple[Hardware, ...]
    name: str
    """The name of the partition in the site."""

    @property
    def access(self) -> tuple[str, ...]:
        """The options that submit to it; Slurm gives a job no GPU that it does not request."""
        gpus = self.nodes[0].gpu_count
        return (f"--partition={self.queue}", *([f"--gres=gpu:{gpus}"] if gpus else []))


@dataclass(frozen=True)
class Cluster:
    """A cluster of Slurm as a host of it describes it."""

    groups: tuple[Group, ...]
    described: dict[str, Outputs] = field(default_factory=dict)
    """What a node of the partition of Slurm printed; missing where none could be asked."""
    pmi: tuple[str, ...] | None = None
    """The types of ``srun --mpi``; None if srun does not answer."""
    remarks: tuple[str, ...] = ()

    def launcher(self, family: MpiFamily) -> str:
        """Return what starts the ranks of an MPI: srun needs a PMI that the MPI supports."""
        supported = {*mpi.pmi_types(family), *mpi.pmi_types(family, pmix=True)}
        return "srun" if self.pmi is None or supported & {*self.pmi} else "mpirun"


def cluster_of(host: Outputs) -> Cluster | None:
    """Describe the cluster that a host belongs to; None if Slurm does not answer.

    Outside a job, one job describes an idle node of each kind. ``host`` describes the kind of a
    compute node.
    """
    slurm = Slurm()
    groups, remarks = groups_of(slurm.hardware(), slurm.default_queue())
    if not groups:
        return None
    described: dict[str, Outputs] = {}
    by_hardware: dict[tuple[object, ...], Outputs] = {}
    for group in groups:
        hardware = group.nodes[0].kind
        if host.host.partition(".")[0] in (node.name for node in group.nodes):
            by_hardware[hardware] = host
        if hardware not in by_hardware:
            try:
                by_hardware[hardware] = _ask(group)
            except BusbarError as error:
                remarks.append(remark("as-slurm-states", queue=group.queue, error=error))
        if hardware in by_hardware:
            described[group.queue] = by_hardware[hardware]
    try:
        offered = mpi_types()
    except BusbarError:
        offered = None
    return Cluster(tuple(groups), described, offered, tuple(remarks))


def groups_of(nodes: Sequence[Hardware], default: str = "") -> tuple[list[Group], list[str]]:
    """Return partitions that have each node once, and remarks on what they leave out.

    Partitions of equal nodes come first, the largest of them before the others.
    """
    queues = grouped((queue, node) for node in nodes for queue in node.partitions)
    remarks: list[str] = []
    groups: list[Group] = []
    covered: set[str] = set()
    left_out: list[str] = []
    for queue in sorted(
        queues,
        key=lambda name: (
            len(_kinds(queues[name])) > 1,
            -len(queues[name]),
            name != default,
            name,
        ),
    ):
        names = {node.name for node in queues[queue]}
        if names <= covered:
            left_out.append(queue)
            continue
        kinds = _kinds([node for node in queues[queue] if node.name not in covered])
        covered |= names
        hardware, _ = kinds.most_common(1)[0]
        alike = tuple(node for node in queues[queue] if node.kind == hardware)
        name = site_name(queue)
        if name in (group.name for group in groups):  # two names differ in their case only
            name = f"{name}-{len(groups)}"
        groups.append(Group(queue, alike, name))
        if others := len(names) - len(alike):
            remarks.append(remark("other-kind", queue=queue, others=others, alike=len(alike)))
    if left_out:
        remarks.append(remark("covered", queues=", ".join(sorted(left_out))))
    return sorted(groups, key=lambda group: -group.nodes[0].gpu_count), remarks


def _kinds(nodes: Sequence[Hardware]) -> Counter[tuple[object, ...]]:
    return Counter(node.kind for node in nodes)


def _ask(group: Group) -> Outputs:
    """Let a job on an idle node of a partition describe the node.

    Raises ``BusbarError`` with the reason if that cannot be.
    """
    by_hand = f"srun --nodes=1 --exclusive {' '.join(group.access)} busbar site detect"
    if "SLURM_JOB_ID" in os.environ:
        hint = f"outside the job, run: {by_hand}"
        raise BusbarError("this command runs inside a job", hint=hint)
    idle = [node.name for node in group.nodes if node.is_idle]
    if not idle:
        raise BusbarError("none of its nodes is idle", hint=f"run later: {by_hand}")
    options = [
        *("--exclusive", "--mpi=none", "--time=2", f"--nodelist={idle[0]}"),
        *(f"--immediate={_START_S}", "--job-name=busbar-detect", *group.access),
    ]
    done = on_a_node(options, (*PYTHON, "busbar.detect.cluster"), _JOB_S)
    if done.returncode == NO_ANSWER:
        raise BusbarError(f"{idle[0]} did not answer within {_JOB_S} s", hint=f"run: {by_hand}")
    try:
        # A prolog of tasks can print before it.
        return TypeAdapter(Outputs).validate_json(done.stdout[done.stdout.find("{") :])
    except ValidationError as error:
        words = next(_sentences(done.stderr), f"{idle[0]} printed no description")
        raise BusbarError(words, hint=f"after correcting this, run: {by_hand}") from error


def _sentences(errors: str) -> Iterator[str]:
    """Yield what a tool complains of, without the names of the tool and its levels."""
    for line in errors.splitlines():
        if text := line.removeprefix("srun: ").removeprefix("error: ").strip():
            yield text


if __name__ == "__main__":
    stdout().document(TypeAdapter(Outputs).dump_python(gather(), mode="json"))
