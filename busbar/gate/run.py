# SPDX-License-Identifier: MIT
"""One run of the gate: what it found, and whether the node may take jobs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from busbar.errors import BusbarError
from busbar.gate.active import measure
from busbar.gate.bounded import Task, finish
from busbar.gate.findings import Basis, GateDocument, GateFinding, concluded
from busbar.gate.memory import GateMemory, LogLook, is_starved, recall
from busbar.gate.passive import gather
from busbar.gate.ports import judge_ports
from busbar.gate.site import GateSite, Xid
from busbar.gate.site_commands import judge_commands
from busbar.gate.slurm import SlurmContext
from busbar.gate.state import Stated, judge_state, unknown_xid
from busbar.gate.sysfs import DOWN, PortState

_RESERVE_S = 1.0
"""Part of the deadline that is reserved for the report."""
_MOST_TOOL_S = 10.0
_MOST_COPY_S = 30.0
_MORE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin"
"""Slurm gives a prolog no search path."""
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True)
class GateOptions:
    """What the user asked of the gate."""

    slurm: SlurmContext
    load: Callable[[], GateSite | None]
    """Read the site; None without one."""
    xid: Callable[[int], Xid] | None = None
    """What a code of NVIDIA's driver means; None if the site knows."""
    partition: str = ""
    passive: bool = False
    dry_run: bool = False
    """Whether a fault that the site enforces leaves the node in service."""
    deadline_s: float = 45.0
    root: Path = Path("/")
    memory: Path | None = None
    """Where the gate remembers this node; None for a single look."""


Seen = Basis | GateFinding | LogLook | PortState
Emit = Callable[[Seen], None]


def run(options: GateOptions) -> GateDocument:
    """Check the node within the deadline. Findings up to the deadline count.

    All work is done in a child process, so that the gate survives hangs and crashes.
    """
    at, start = time.time(), time.monotonic()
    seconds = max(options.deadline_s - _RESERVE_S, 0.1)
    memory, forgot = _memory(options)
    task = Task[Seen](partial(evaluate, options, memory), seconds)
    finish([task])
    values: Sequence[Seen] = task.outcome.values
    findings = [each for each in values if isinstance(each, GateFinding)]
    if memory:
        known = {each.where for each in findings if each.check == "nic_state"}
        for port in values:
            if isinstance(port, PortState) and port.name in known:
                memory.went_down(port.name, dict(port.counters).get(DOWN, 0), at)
        findings = list(memory.judged(findings, at, starved=is_starved(options.root)))
    result = concluded(
        options.slurm.node,
        next((each for each in values if isinstance(each, Basis)), Basis()),
        findings,
        at=at,
        seconds=time.monotonic() - start,
        passive=options.passive,
        problems=(task.outcome.problem, forgot),
    )
    if options.dry_run:
        result = replace(result, drain=False)
    if memory is None:
        return result
    memory.look = next((each for each in values if isinstance(each, LogLook)), memory.look)
    if options.slurm.in_prolog and result.drain:
        memory.refused = result.reason
    try:
        memory.write()
    except (OSError, BusbarError) as error:
        return replace(result, problems=(*result.problems, f"{memory.path}: {error}"))
    return result


def _memory(options: GateOptions) -> tuple[GateMemory | None, str]:
    """Return the findings of earlier looks, or why they are unknown; a job sees too little."""
    if options.memory is None or options.slurm.in_job:
        return None, ""
    try:
        return recall(options.memory, options.root), ""
    except (OSError, BusbarError) as error:
        return None, str(error)


def evaluate(options: GateOptions, memory: GateMemory | None, emit: Emit) -> None:
    """Report the basis, then each finding immediately."""
    end = time.monotonic() + options.deadline_s - _RESERVE_S
    slurm = options.slurm
    if not slurm.in_job:  # a prolog has the variables of the job
        for name in _VISIBLE:
            os.environ.pop(name, None)
    os.environ["PATH"] = ":".join(filter(None, (os.environ.get("PATH"), _MORE_PATH)))
    site, basis = _site(options)
    emit(basis)
    node = site.node(basis.partition) if site and (basis.partition or site.alike) else None
    vendor = node.gpus.vendor if node and node.gpus else None
    has_driver = (options.root / "proc/driver/nvidia").exists() and shutil.which("nvidia-smi")

    def left(most: float) -> float:
        return min(most, max(end - time.monotonic() - _RESERVE_S, 0.1))

    facts = gather(
        left(_MOST_TOOL_S),
        basis.rules.mounts,
        options.root,
        nvidia=vendor == "nvidia" if node else bool(has_driver),
    )
    if memory and facts.log:
        look = memory.whole(facts.log, facts.uptime_s)
        emit(look)
        facts = replace(facts, log=look.log)
    xid = options.xid or (site.xid if site else unknown_xid)
    stated = Stated(node, basis.rules, xid, slurm.in_job)
    ports = facts.system.ports if facts.system else None
    for port in ports or ():
        emit(port)
    parts = (
        partial(judge_state, facts, stated),
        partial(judge_commands, basis.rules.commands, left(_MOST_COPY_S)),
        partial(judge_ports, ports, node, facts.system_problem),
    )
    for finding in chain.from_iterable(part() for part in parts):
        emit(finding)
    if options.passive:
        return
    chosen = slurm.gpus if slurm.in_prolog else ()
    for finding in measure(facts, chosen, node, left(_MOST_COPY_S)):
        emit(finding)


def _site(options: GateOptions) -> tuple[GateSite | None, Basis]:
    """Return the site and its facts; a site that cannot be read is a problem."""
    try:
        site = options.load()
        if site is None:
            return None, Basis()
        site.node(options.partition)
    except BusbarError as error:
        return None, Basis(problem=str(error))
    slurm = options.slurm
    partition = options.partition or site.hosts.get(slurm.node, "")
    if slurm.in_job and not partition and slurm.partition in site.partitions:
        partition = slurm.partition  # not in a prolog: users choose the partition of a job
    problem = (
        f"the site has several node types, and no nodelist with {slurm.node}; add it to"
        " site.yaml, or pass --partition"
    )
    known = partition or site.alike
    return site, Basis(site.name, partition, site.rules, "" if known else problem)
