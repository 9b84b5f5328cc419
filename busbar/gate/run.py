# SPDX-License-Identifier: MIT
"""One run of the gate: what it found, and whether the node may take jobs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from busbar.errors import BusbarError
from busbar.gate.bounded import Task, finish
from busbar.gate.findings import Finding, Ruled, ruled
from busbar.gate.reason import reason_of
from busbar.gate.slurm import Slurm
from busbar.site.gate import Gate
from busbar.site.model import Site
from busbar.verdict import Verdict, combined

_RESERVE_S = 1.0
"""What is left of the deadline for the report."""
_MOST_TOOL_S = 10.0
_MOST_COPY_S = 30.0
_MORE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin"
"""Slurm gives a prolog no search path."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Options:
    """What the user asked of the gate."""

    slurm: Slurm
    site: str | None = None
    partition: str | None = None
    passive: bool = False
    deadline_s: float = 45.0
    root: Path = Path("/")


@dataclass(frozen=True)
class Basis:
    """What the findings are judged by."""

    site: str = ""
    partition: str = ""
    gate: Gate | None = None
    problem: str = ""
    """Why the site is not known; empty if it is."""


@dataclass(frozen=True)
class Result:
    """The verdict on the node."""

    node: str
    basis: Basis
    passive: bool
    checks: tuple[Ruled, ...]
    seconds: float
    at: float
    """When it began, in seconds since 1970."""
    problems: tuple[str, ...] = ()
    """Why the gate is not complete."""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict; ``unknown`` if the gate is not complete."""
        verdicts = [check.finding.verdict for check in self.checks]
        return combined([*verdicts, *(Verdict.UNKNOWN for _ in self.problems)])

    @property
    def faults(self) -> tuple[Ruled, ...]:
        """What takes the node out of service."""
        return tuple(check for check in self.checks if check.drains)

    @property
    def reason(self) -> str:
        """The reason for Slurm; empty if the node may stay."""
        return reason_of(self.faults) if self.faults else ""


Emit = Callable[[Basis | Finding], None]


def run(options: Options) -> Result:
    """Check the node within the deadline. What was found until then counts.

    All work is done in a child process, so that nothing that hangs or crashes takes the gate
    with it.
    """
    at, start = time.time(), time.monotonic()
    task = Task[Basis | Finding](_work(options), max(options.deadline_s - _RESERVE_S, 0.1))
    finish([task])
    basis = Basis()
    findings: list[Finding] = []
    for value in task.outcome.values:
        if isinstance(value, Basis):
            basis = value
        else:
            findings.append(value)
    checks = [ruled(finding, basis.gate) for finding in findings]
    problems = [text for text in (basis.problem, task.outcome.problem) if text]
    return Result(
        node=options.slurm.node,
        basis=basis,
        passive=options.passive,
        checks=tuple(check for check in checks if check),
        seconds=time.monotonic() - start,
        at=at,
        problems=tuple(problems),
    )


def _work(options: Options) -> Callable[[Emit], None]:
    return lambda emit: evaluate(options, emit)


def evaluate(options: Options, emit: Emit) -> None:
    """Report the basis, then each finding as soon as it is known."""
    from busbar.gate.passive import gather  # noqa: PLC0415 - its import counts for the deadline
    from busbar.gate.ports import judge_ports  # noqa: PLC0415
    from busbar.gate.state import Stated, judge_state  # noqa: PLC0415
    from busbar.site.load import link_classes  # noqa: PLC0415

    end = time.monotonic() + options.deadline_s - _RESERVE_S
    if not options.slurm.in_job:  # a prolog has those of the job
        for name in _VISIBLE:
            os.environ.pop(name, None)
    os.environ["PATH"] = ":".join(filter(None, (os.environ.get("PATH"), _MORE_PATH)))
    site, basis = _site(options)
    emit(basis)
    partition = basis.partition or None
    node = site.node_type(partition) if site and (partition or _alike(site)) else None
    gate = basis.gate or Gate()
    vendor = node.gpus.vendor if node and node.gpus else None
    has_driver = (options.root / "proc/driver/nvidia").exists() and shutil.which("nvidia-smi")
    facts = gather(
        min(_MOST_TOOL_S, max(end - time.monotonic() - _RESERVE_S, 0.1)),
        gate.mounts,
        options.root,
        nvidia=vendor == "nvidia" if node else bool(has_driver),
    )
    for finding in judge_state(facts, Stated(node, gate, options.slurm.in_job)):
        emit(finding)
    ports = facts.system.ports if facts.system else None
    classes = link_classes(site) if site else {}
    for finding in judge_ports(ports, node, classes, facts.system_problem):
        emit(finding)
    if options.passive:
        return
    from busbar.gate.active import measure  # noqa: PLC0415 - --passive measures nothing
    from busbar.gate.loopback import measure_ports  # noqa: PLC0415

    chosen = options.slurm.gpus if options.slurm.in_prolog else ()
    seconds = min(_MOST_COPY_S, max(end - time.monotonic() - _RESERVE_S, 0.1))
    for finding in measure_ports(ports or (), node):
        emit(finding)
    for finding in measure(facts, chosen, site if node else None, partition, seconds):
        emit(finding)


def _site(options: Options) -> tuple[Site | None, Basis]:
    """Return the site and what is known of it; a site that cannot be read is a problem."""
    from busbar.site.load import load, names  # noqa: PLC0415

    try:
        name = options.site
        if name is None and options.slurm.cluster in names():
            name = options.slurm.cluster
        if name is None:
            return None, Basis()
        site = load(name)
        if options.partition:
            site.node_type(options.partition)
    except BusbarError as error:
        return None, Basis(problem=str(error))
    known = {partition.name for partition in site.partitions}
    job = options.slurm.partition
    partition = options.partition or (job if job in known else "")
    problem = "" if partition or _alike(site) else "the site has several node types"
    hint = "; give --partition" if problem else ""
    return site, Basis(site.name, partition, site.gate, f"{problem}{hint}")


def _alike(site: Site) -> bool:
    return len({partition.node_type for partition in site.partitions}) == 1
