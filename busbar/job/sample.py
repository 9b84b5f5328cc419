# SPDX-License-Identifier: MIT
"""What the collector saw on one node: its JSON as types; and the ranks in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from busbar.document import load, parse_document
from busbar.engine.documents import Collective
from busbar.parse.cpulist import parse_cpu_list

_FOR_CHILD = re.compile("do_wait|kernel_wait4?")
"""Functions of the kernel that wait for a child."""
Space = tuple[int, int, int, int]
"""Free and all bytes, free and all files."""


@dataclass(frozen=True)
class Process:
    """One process of the job."""

    pid: int
    name: str
    parent: int
    gone: bool
    """Whether it ended while it was observed."""
    age_s: float
    """At the first look."""
    rank: int | None
    local_rank: int | None
    world: int | None
    step: str
    settings: dict[str, str]
    space: str
    """Its network namespace."""
    states: str
    """Of its main thread at each look."""
    wchan: str
    """The function of the kernel in which it waits at the end."""
    cpu: tuple[float, ...]
    """CPUs that it used between every two looks."""
    wait: float
    """Part of the time for which a thread with work waited for a CPU."""
    faults: float
    """Pages per second that it read back."""
    switches: float
    """How often per second its main thread gave up its CPU."""
    moved: tuple[float, float, float, float]
    """Bytes per second: read and written by calls, and of disks."""
    cut: dict[str, tuple[float, float]]
    """CPUs of each quota, and the share of time in whose periods it stopped the group."""
    swap_kib: int
    allowed: str
    """CPUs that it may use."""
    libraries: tuple[str, ...] | None = None
    """None if its memory maps could not be read."""
    shared: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    """Those in which it waited at the looks."""
    gpu: bool = False
    files: tuple[tuple[str, Space | None], ...] = ()
    """Those open for writing, with the space of their file systems."""
    joints: dict[str, int] = field(default_factory=dict)
    """Pipes, FIFOs and UNIX sockets that others of the job hold too: 1 writes, 2 reads, 3 both."""
    numa: dict[str, int] = field(default_factory=dict)
    """KiB on each NUMA node."""
    stack: str = ""
    """How often py-spy saw each Python stack."""
    recorded: tuple[tuple[Collective, ...], ...] = ()
    """First and last content of PyTorch's flight recorder: the collective of each group."""

    @property
    def mean_cpu(self) -> float:
        """CPUs that it used on average."""
        return fmean(self.cpu) if self.cpu else 0.0


def cpus_of(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list; none for another text."""
    with suppress(ValueError):  # of a kernel that writes it differently
        return parse_cpu_list(text)
    return ()


@dataclass(frozen=True)
class GpuState:
    """A GPU at one moment."""

    percent: int
    mhz: int
    reasons: int
    """Bits that say why the clock is low."""
    processes: tuple[tuple[int, int], ...]
    """Ids with MiB."""
    bus: str = ""
    """Its PCI address."""
    pcie: float = 0.0
    """Bytes per second in one direction, within 20 ms."""
    links: int = 0
    """Active NVLinks."""
    moved: int | None = None
    """Bytes over NVLink or XGMI in one direction; None if they are not counted."""


@dataclass(frozen=True)
class NodeSample:
    """What the collector printed."""

    schema: str
    node: str
    seconds: float
    root: bool
    cpu_s: float
    processes: tuple[Process, ...]
    others: tuple[tuple[int, str, float, int], ...]
    """Processes of others: id, name, CPUs that they used, last CPU."""
    sockets: tuple[tuple[int, str, str, int, int, int], ...]
    """Process, both ends, looks, looks with bytes to send, looks with unread bytes."""
    ports: dict[str, dict[str, float]]
    """Bytes per second by network namespace and interface, of ``rdma`` and ``ethernet`` ports, and
    ``errors`` of RDMA ports."""
    limits: dict[str, tuple[float, float]]
    """GB/s of the link of a port and of its PCIe slot, 0 if not known."""
    gpus: tuple[tuple[float, tuple[GpuState, ...]], ...]
    ras: str
    numa: dict[str, str]
    problems: tuple[str, ...]
    kernel: tuple[tuple[str, str, int, float, str], ...] = ()
    """Errors of GPUs in the kernel log: kind, PCI address, code, age in s, text."""


def read_sample(line: str) -> NodeSample:
    """Return the sample of a node; raise ``ValueError`` for anything else."""
    return parse_document(NodeSample, load(line), finite=True)


@dataclass(frozen=True)
class LiveRank:
    """A rank: the process that communicates, and those that it started or that started it."""

    number: int
    named: bool
    """Whether the launcher gave it this number."""
    main: Process
    node: NodeSample
    every: tuple[Process, ...]

    def __str__(self) -> str:
        pid = f"PID {self.main.pid}"
        return f"{f'rank {self.number} ({pid})' if self.named else pid} on {self.node.node}"

    @cached_property
    def cpu(self) -> float:
        """CPUs that all its processes used."""
        return sum(each.mean_cpu for each in self.every)


def ranks_of(nodes: Iterable[NodeSample]) -> list[LiveRank]:
    """Return the ranks of all nodes by their number."""
    return sorted((r for n in nodes for r in _of_node(n)), key=lambda r: (not r.named, r.number))


def _of_node(node: NodeSample) -> Iterator[LiveRank]:
    parents = {each.pid: each.parent for each in node.processes}
    named = any(each.rank is not None for each in node.processes)
    for launcher in () if named else _launchers(node.processes):
        del parents[launcher]
    groups: dict[object, list[Process]] = {}
    for each in (process for process in node.processes if process.pid in parents):
        top = each.pid
        while parents[top] in parents:
            top = parents[top]
        if not named or each.rank is not None:
            groups.setdefault((each.step, each.rank) if named else top, []).append(each)
    for number, members in enumerate(groups.values()):
        main = _main(members)
        rank = number if main.rank is None else main.rank
        yield LiveRank(rank, named, main, node, tuple(members))


def _launchers(every: Sequence[Process]) -> Sequence[int]:
    """Return the processes that only wait for workers, and others beside these.

    Workers are two or more processes of one program that one process started.
    """
    pids = {each.pid for each in every}
    found: list[int] = []
    heads = [each for each in every if each.parent not in pids]
    while len(heads) == 1 and _FOR_CHILD.fullmatch(heads[0].wchan):
        found.append(heads[0].pid)
        heads = [each for each in every if each.parent == heads[0].pid]
    names = Counter(each.name for each in heads)
    alone = [each.pid for each in heads if names[each.name] == 1]
    return found + alone if len(alone) < len(heads) else ()


def _main(members: Sequence[Process]) -> Process:
    """Return the process that communicates: not a wrapper, nor a worker that it forked."""
    talking = [each for each in members if each.libraries] or members
    pids = {each.pid for each in talking}
    top = [each for each in talking if each.parent not in pids]
    return max(top or talking, key=lambda each: (each.mean_cpu, -each.pid))
