# SPDX-License-Identifier: MIT
"""One run of the gate: what it found, and whether the node may take jobs."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from busbar.boundary import refuse_foreign_code
from busbar.errors import BusbarError
from busbar.gate import bounded
from busbar.gate.active import measure
from busbar.gate.bounded import Output, Task, finish
from busbar.gate.findings import Basis, GateDocument, GateFinding, compared, concluded, unknown
from busbar.gate.memory import GateMemory, LogLook, is_starved, recall
from busbar.gate.passive import gather
from busbar.gate.site import CommandRule, GateSite, NodeKind, NodePort, Xid
from busbar.gate.slurm import SlurmContext
from busbar.gate.state import Stated, judge_state, unknown_xid
from busbar.gate.sysfs import DOWN, PortState
from busbar.verdict import Verdict


# ---- Judge the network ports of a node by its site: state and rate
# Their loopback uses neither cable nor switch, so nothing here moves bytes: ``busbar sweep`` does.
def judge_ports(
    ports: Sequence[PortState] | None, node: NodeKind | None, problem: str = ""
) -> Iterator[GateFinding]:
    """Yield state and rate of each port that the site lists.

    Names may differ between nodes of one type. If the node has none of them, the ports are counted
    instead.
    """
    if node is None or not node.ports:
        return
    if ports is None:
        yield unknown("nic_state", problem, silent=True)
        return
    by_name = {port.name: port for port in ports}
    found = {nic.name: _ports_of(nic, by_name) for nic in node.ports}
    if not any(found.values()):
        yield _counted(ports, node)
        return
    for nic in node.ports:
        mine = found[nic.name]
        if len(mine) < nic.count:
            value = f"{len(mine)} of {nic.count} ports" if mine else "missing"
            yield GateFinding("nic_state", Verdict.FAILED, nic.name, value, "active")
        for port in mine:
            yield _state(port)
            if port.active:
                yield _rate(port, nic)


def _ports_of(nic: NodePort, by_name: Mapping[str, PortState]) -> list[PortState]:
    names = [nic.name]
    if nic.name.startswith("cxi"):  # Slingshot: the kernel shows rate and state of the interface
        names.append(f"hsn{nic.name.removeprefix('cxi')}")
    mine = [by_name[name] for name in names if name in by_name]
    prefix = f"{nic.name}/"
    return [*mine, *(port for name, port in by_name.items() if name.startswith(prefix))]


def _counted(ports: Sequence[PortState], node: NodeKind) -> GateFinding:
    active = sum(port.rdma and port.active for port in ports)
    wanted = sum(nic.count for nic in node.ports)
    value, band = f"{active} active RDMA ports", f"{wanted} ports"
    if active >= wanted:
        note = "names differ from site.yaml"
        return GateFinding("nic_state", Verdict.PASS, value=value, band=band, note=note)
    note = f"/sys has no port or interface {node.ports[0].name}; correct nics in site.yaml"
    return GateFinding("nic_state", Verdict.UNKNOWN, value=value, band=band, note=note)


def _state(port: PortState) -> GateFinding:
    note = ", ".join(f"{name} {count}" for name, count in port.counters)
    found = compared("nic_state", port.active, port.name, port.state.lower(), "active")
    return replace(found, note=note)


def _rate(port: PortState, nic: NodePort) -> GateFinding:
    if port.gbit_per_s is None or nic.gbit_per_s is None:
        note = "the kernel does not show its rate"
        return GateFinding("nic_rate", Verdict.UNJUDGED, port.name, note=note)
    verdict = Verdict.PASS if port.gbit_per_s >= nic.gbit_per_s else Verdict.DEGRADED
    value = f"{port.gbit_per_s:g} Gb/s"
    return GateFinding("nic_rate", verdict, port.name, value, f"{nic.gbit_per_s:g} Gb/s")


# ---- The commands of a site that check a node, which end as plugins of Nagios do
_STATUSES = {0: Verdict.PASS, 1: Verdict.DEGRADED, 2: Verdict.FAILED}
_MOST_TEXT = 200
_INTERPRETER = re.compile(r"(?:env|[a-z]{0,3}sh|perl|python|ruby|lua)[\d.]*")


def judge_commands(commands: Sequence[CommandRule], most_s: float) -> Iterator[GateFinding]:
    """Run all at the same time, and yield a finding for each."""
    tasks: dict[str, Task[Output]] = {}
    refused = {}
    for each in commands:
        try:
            for file in _programs(each.run):
                refuse_foreign_code(file)
            tasks[each.name] = bounded.program(each.run, min(each.seconds, most_s))
        except (BusbarError, OSError) as error:
            refused[each.name] = str(error)
    finish(list(tasks.values()))
    for each in commands:
        yield _finding(each, tasks.get(each.name), refused.get(each.name, ""))


def _programs(command: Sequence[str]) -> Iterator[Path]:
    """Yield what a command executes: its program, and what that may start or interpret."""
    program = Path(command[0])
    yield program
    for file in (Path(word) for word in command[1:] if word.startswith("/")):
        if file.is_file() and (os.access(file, os.X_OK) or _INTERPRETER.fullmatch(program.name)):
            yield file


def _finding(rule: CommandRule, task: Task[Output] | None, refused: str) -> GateFinding:
    value = problem = ""
    verdict, severity = Verdict.UNKNOWN, rule.severity
    if task is None or not task.outcome.values:
        problem = refused or (task.outcome.problem if task else "")
    else:
        done = task.outcome.values[0]
        lines = (done.text.strip() or done.errors.strip()).splitlines()
        value = (lines[0] if lines else f"status {done.status}")[:_MOST_TEXT]
        verdict = _STATUSES.get(done.status, Verdict.UNKNOWN)
        if verdict is Verdict.UNKNOWN:
            problem = f"status {done.status}"
        elif verdict is Verdict.DEGRADED:
            severity = "warning"
    return GateFinding(
        *("command", verdict, rule.name, value, "ok", problem),
        mode=rule.mode,
        severity=severity,
        remedy=rule.remedy,
        silent=task is not None and not task.outcome.values,
    )


# ---- All checks
_RESERVE_S = 1.0
"""What is left of the deadline for the report."""
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
    """Report the basis, then each finding as soon as it is known."""
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
    """Return the site and what is known of it; a site that cannot be read is a problem."""
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
