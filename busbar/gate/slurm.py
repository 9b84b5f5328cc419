# SPDX-License-Identifier: MIT
"""Slurm's variables for the gate, and how a node is drained and resumed.

A prolog or epilog must not run Slurm's commands: slurmctld waits for it (Slurm, "Prolog and Epilog
Guide"). There, the exit status drains the node.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from busbar.gate.bounded import finish, output_of, program
from busbar.gate.findings import GateDocument, own_check
from busbar.parse import numbers
from busbar.verdict import Verdict

_COMMAND_S = 4.0
COMMANDS_S = 2 * _COMMAND_S
"""How long draining or resuming can take: two commands of Slurm."""
_HOOK_REASONS = ("prolog error", "epilog error")
"""What Slurm gives as the reason of a node where a hook has failed."""
HOOKS = ("prolog", "epilog")
"""The beginnings of SLURM_SCRIPT_CONTEXT where a failure drains the node."""


@dataclass(frozen=True)
class SlurmContext:
    """The variables of Slurm that matter here."""

    node: str
    """The name of this node."""
    cluster: str = ""
    partition: str = ""
    job: str = ""
    gpus: tuple[int, ...] = ()
    """The GPUs of the job."""
    context: str = ""
    """``prolog_slurmd``, ``epilog_slurmd``...; empty elsewhere."""
    healthy: bool | None = None
    """The node state that Slurm passes to a HealthCheckProgram (26.05 and later), or None."""

    @property
    def in_prolog(self) -> bool:
        """Whether this is a prolog or epilog, whose exit status drains the node."""
        return self.context.startswith(HOOKS)

    @property
    def in_job(self) -> bool:
        """Whether this runs as a part of a job, whose cgroup can hide devices."""
        return bool(self.job) and not self.in_prolog


def from_environment() -> SlurmContext:
    """Return what the variables of Slurm say; those that are missing are empty."""
    gpus = os.environ.get("SLURM_JOB_GPUS") or os.environ.get("SLURM_STEP_GPUS") or ""
    health = os.environ.get("SLURM_NODE_IS_HEALTHY", "").lower()
    return SlurmContext(
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        cluster=os.environ.get("SLURM_CLUSTER_NAME", ""),
        partition=os.environ.get("SLURM_JOB_PARTITION", ""),
        job=os.environ.get("SLURM_JOB_ID", ""),
        gpus=tuple(numbers.count(word) for word in gpus.split(",") if numbers.is_whole(word)),
        context=os.environ.get("SLURM_SCRIPT_CONTEXT", ""),
        healthy={"yes": True, "no": False}.get(health),
    )


@dataclass(frozen=True)
class DrainState:
    """A node as Slurm has it."""

    states: frozenset[str]
    """In lower case: ``idle``, ``drain``, ``down``..."""
    reason: str

    @property
    def is_drained(self) -> bool:
        """Whether it gets no new jobs, or is about to end those that it has."""
        return bool(self.states & {"drain", "drained", "draining", "drng"})


def state_of(node: str) -> tuple[DrainState | None, str]:
    """Return the state of a node, or why it is not known."""
    text, problem = _run("sinfo", "--noheader", f"--nodes={node}", "--format=%T|%E")
    line = text.splitlines()[0] if text.strip() else ""
    if not line:
        return None, problem or f"sinfo does not list the node {node}"
    state, _, reason = line.partition("|")
    words = frozenset(state.lower().rstrip("*~#!%$@^-+").split("+"))
    return DrainState(words, "" if reason.strip().lower() == "none" else reason.strip()), ""


def drain_node(result: GateDocument, slurm: SlurmContext) -> str:
    """Drain the node for its faults; return what was done. A reason that it has is kept."""
    node = slurm.node
    if slurm.healthy is not False:
        state, problem = state_of(node)
        if state is None:
            return f"cannot drain {node}: {problem}"
        if not state.is_drained:
            problem = _update(node, "State=DRAIN", f"Reason={result.reason}")
            return f"cannot drain {node}: {problem}" if problem else f"drained {node}"
    return f"{node} is already out of service; keeping its reason"


def name_reason(node: str, reason: str) -> tuple[str, bool]:
    """Replace the reason that Slurm gives a node whose prolog or epilog has failed.

    Returns what was done, and whether it need not be tried again. Another reason is kept.
    """
    state, problem = state_of(node)
    if state is None:
        return f"Slurm does not answer: {problem}", False
    if not state.is_drained or state.reason.lower() not in _HOOK_REASONS:
        return f"{node} was drained by a hook of the gate, and is not any more", True
    problem = _update(node, f"Reason={reason}")
    if problem:
        return f"cannot replace the reason of {node}: {problem}", False
    return f"{node} was drained by a hook of the gate; the gate has replaced the reason", True


def resume_node(result: GateDocument, slurm: SlurmContext) -> str:
    """Resume the node if the gate drained it and the fault is gone; return what was done."""
    node = slurm.node
    state, problem = state_of(node)
    if state is None:
        return f"cannot recheck {node}: {problem}"
    if not state.is_drained:
        return f"{node} is in service"
    if why := _keeps(result, state.reason):
        return f"{node} stays drained: {why}"
    problem = _update(node, "State=RESUME")
    return f"cannot resume {node}: {problem}" if problem else f"resumed {node}"


def _keeps(result: GateDocument, reason: str) -> str:
    """Return why a node stays drained; empty if it can be resumed."""
    check = own_check(reason)
    if check is None:
        return f"the gate did not drain it ({reason or 'no reason'})"
    if result.drain:
        return result.reason
    rows = [row for row in result.checks if row.check == check]
    if not rows:
        return f"{check} was not checked"
    doubtful = [row.note for row in rows if row.verdict is not Verdict.PASS]
    return f"{check} is not known to be healthy: {doubtful[0]}".rstrip(": ") if doubtful else ""


def _update(node: str, *words: str) -> str:
    """Change a node; return why it failed, empty if it did not."""
    return _run("scontrol", "update", f"NodeName={node}", *words)[1]


def _run(*command: str) -> tuple[str, str]:
    task = program(command, _COMMAND_S)
    finish([task])
    text, problem = output_of(task)
    silent = problem == "printed nothing"
    return text, "" if silent else f"{command[0]} {problem}" if problem else ""
