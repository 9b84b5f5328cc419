# SPDX-License-Identifier: MIT
"""From samples of all nodes of a job to one answer: a pure function.

What a fact proves (a state, a counter of throttled periods) counts by itself. Everything else is
named only if one rank differs from its peers, and if all ranks could be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from busbar.document import written
from busbar.engine.reading import Cause
from busbar.job import rules_gpu, rules_host, rules_peers
from busbar.job.evidence import LIMIT, LiveJob, Rule
from busbar.job.rules_host import JobPort
from busbar.job.sample import NodeSample, ranks_of
from busbar.slurm.hostlist import natural
from busbar.verdict import Verdict
from busbar.words import counted, grouped, names_text

_PROVEN: Sequence[Rule] = (
    *(rules_host.stopped, rules_host.full, rules_gpu.kernel_errors, rules_host.quota),
    *(rules_gpu.collectives, rules_peers.recorded, rules_host.errors, rules_host.slow),
)
_COMPARED: Sequence[Rule] = (
    *(rules_host.shared_cpu, rules_host.swapping, rules_host.storage, rules_gpu.throttled),
    *(rules_gpu.foreign, rules_gpu.settings, rules_peers.stacks, rules_peers.tcp_within_node),
    *(rules_peers.slow_path, rules_host.idle, rules_gpu.late, rules_peers.late),
    *(rules_peers.blocked, rules_host.no_cpu, rules_host.far_memory),
)
_ENDS = {"rank-stopped", "cannot-write", "collective-mismatch"}
"""Causes that keep a job from going on."""
_OTHERS = {"cpu-busy", "gpu-busy"}
"""Causes that are not a fault of the job or its machine."""
_FOLLOWS = {"rank-late", "cpu-busy", "cpu-affinity", "storage-stalled"}
"""Causes that others explain."""


@dataclass(frozen=True)
class RankRow:
    """What a rank did."""

    rank: int
    node: str
    pid: int
    program: str
    cpus: float
    """CPUs that it and its children used, on average."""
    cpu_wait_share: float
    """Part of the time for which a thread with work waited for a CPU."""
    states: str
    """State of the main thread at each look: R runs, S sleeps, D waits for a disk, T stopped."""
    waits_in: str = field(metadata=written(omit=True))
    """Function of the kernel in which the main thread waits."""
    stack: str = field(metadata=written(omit=True))
    """Its innermost Python frames, with --stacks."""


@dataclass(frozen=True, kw_only=True)
class JobAnswer:
    """What holds a running job up."""

    schema: Literal["busbar-job/1"] = "busbar-job/1"
    """The schema of this document."""
    job: str
    """Job or process ids."""
    verdict: Verdict
    headline: str
    """The answer in one sentence."""
    causes: tuple[Cause, ...]
    """What a fact proves first."""
    ranks: tuple[RankRow, ...] = ()
    nodes: tuple[str, ...]
    ports: tuple[JobPort, ...] = ()
    seconds: float = 0.0
    """For which the job was observed; 0 for records of its past."""
    collector_cpu_s: float = 0.0
    """CPU time of the collector, on the node with the largest."""
    collector_cpus: float | None = None
    """CPUs that it used there on average since --watch began, with the pauses; null at first."""
    unseen: tuple[str, ...] = ()
    """What could not be read, and what root would see."""


def judge(job: str, nodes: Sequence[NodeSample], problems: Sequence[str] = ()) -> JobAnswer:
    """Return the answer for samples of the nodes of a job."""
    nodes = sorted(nodes, key=lambda each: natural(each.node))
    live = LiveJob(nodes, ranks_of(nodes))
    causes: list[Cause] = []
    for rule in (*_PROVEN, *(() if live.unsteady else _COMPARED)):
        for each in rule(live):
            if each.id not in _FOLLOWS or not any(_explains(other, each) for other in causes):
                causes.append(each)
    verdict, headline = _answer(live, causes)
    return JobAnswer(
        job=job,
        verdict=verdict,
        headline=headline,
        causes=tuple(causes),
        ranks=tuple(
            RankRow(
                *(r.number, r.node.node, r.main.pid, r.main.name, round(r.cpu, 2)),
                *(round(r.main.wait, 3), r.main.states, r.main.wchan.strip("0")),
                rules_peers.calls(r)[1],
            )
            for r in live.ranks
        ),
        nodes=tuple(each.node for each in nodes),
        ports=rules_host.ports_of(live),
        seconds=max((each.seconds for each in nodes), default=0.0),
        collector_cpu_s=max((each.cpu_s for each in nodes), default=0.0),
        unseen=(*problems, *_unseen(nodes)),
    )


def _explains(other: Cause, late: Cause) -> bool:
    return other.id in _ENDS or bool({*late.details["pids"]} & {*other.details["pids"]})


def _answer(live: LiveJob, causes: Sequence[Cause]) -> tuple[Verdict, str]:
    if not causes:
        return _unaccused(live)
    verdict = Verdict.UNKNOWN if {each.id for each in causes} <= _OTHERS else Verdict.DEGRADED
    return Verdict.FAILED if causes[0].id in _ENDS else verdict, headline_of(causes)


def headline_of(causes: Sequence[Cause]) -> str:
    """Return the first cause, and how many more there are."""
    rest = f"; {len(causes) - 1} more below" if len(causes) > 1 else ""
    return causes[0].summary + rest


def _unaccused(live: LiveJob) -> tuple[Verdict, str]:
    """Return what a job does if no part of it is at fault."""
    if not live.ranks:
        return Verdict.UNKNOWN, "no process of the job was seen"
    if live.unsteady:
        return Verdict.UNJUDGED, f"{live.unsteady}; try again later"
    cpu = sum(each.cpu for each in live.ranks) / len(live.ranks)
    text = f"{counted(len(live.ranks), 'rank')}, {cpu:.2g} CPUs each"
    if carried := rules_host.fullest(live):
        text = f"{text}; {carried}"
    if (least := min(rank.main.wait for rank in live.ranks)) >= LIMIT.waited:
        said = f"all ranks wait for CPUs at least {least:.0%} of the time"
        return Verdict.UNKNOWN, f"{said}, but what uses them is unknown: {text}"
    if rules_peers.moves(live) or rules_gpu.moves(live):
        return Verdict.PASS, f"nothing delays the job, its ranks exchange data: {text}"
    rates = [rate for rank in live.ranks for rate in rank.main.moved[:2]]
    if cpu >= LIMIT.computes or max(rates) >= LIMIT.file_bytes_per_s:
        does = "computes" if cpu >= LIMIT.computes else "reads or writes files"
        return Verdict.PASS, f"the job {does}, and its network is idle: {text}"
    hint = "" if any(r.main.stack for r in live.ranks) else "; --stacks shows where Python waits"
    said = "all ranks wait, but it is unknown for which"
    if len(live.ranks) == 1:
        first, said = live.ranks[0], "one process has no peers with which it can be compared"
        if started := [str(p.pid) for p in first.every if p.parent == first.main.pid][:4]:
            hint = f"; compare what it started: busbar job {' '.join(started)}"
    return Verdict.UNKNOWN, f"{said}: {text}{hint}"


def _unseen(nodes: Sequence[NodeSample]) -> list[str]:
    rows = grouped((each, node.node) for node in nodes for each in node.problems)
    said = [f"{names_text(hosts)}: {each}" for each, hosts in rows.items()]
    unread = sum(each.libraries is None for node in nodes for each in node.processes)
    if unread:
        said.append(f"memory maps of {counted(unread, 'rank')}: only their user may read them")
    if not all(node.root for node in nodes):
        said.append("processes of other users, hidden by /proc (root can see them)")
    return said
