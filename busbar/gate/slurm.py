# SPDX-License-Identifier: MIT
"""What Slurm tells the gate by variables, and how a node is drained and resumed.

A prolog or epilog must not run Slurm's commands: slurmctld waits for it (Slurm, "Prolog and Epilog
Guide"). There, the exit status drains the node.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from busbar.gate.bounded import finish, output_of, program
from busbar.parse import numbers

_COMMAND_S = 4.0
_CONTEXTS = ("prolog", "epilog")


@dataclass(frozen=True)
class Slurm:
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
    """What Slurm told a HealthCheckProgram (26.05 and later); None if it did not."""

    @property
    def in_prolog(self) -> bool:
        """Whether this is a prolog or epilog, whose exit status drains the node."""
        return self.context.startswith(_CONTEXTS)

    @property
    def in_job(self) -> bool:
        """Whether this runs as a part of a job, whose cgroup can hide devices."""
        return bool(self.job) and not self.in_prolog


def from_environment() -> Slurm:
    """Return what the variables of Slurm say; those that are missing are empty."""
    gpus = os.environ.get("SLURM_JOB_GPUS") or os.environ.get("SLURM_STEP_GPUS") or ""
    health = os.environ.get("SLURM_NODE_IS_HEALTHY", "").lower()
    return Slurm(
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        cluster=os.environ.get("SLURM_CLUSTER_NAME", ""),
        partition=os.environ.get("SLURM_JOB_PARTITION", ""),
        job=os.environ.get("SLURM_JOB_ID", ""),
        gpus=tuple(numbers.count(word) for word in gpus.split(",") if numbers.is_whole(word)),
        context=os.environ.get("SLURM_SCRIPT_CONTEXT", ""),
        healthy={"yes": True, "no": False}.get(health),
    )


@dataclass(frozen=True)
class NodeState:
    """A node as Slurm has it."""

    states: frozenset[str]
    """In lower case: ``idle``, ``drain``, ``down``..."""
    reason: str

    @property
    def is_drained(self) -> bool:
        """Whether it gets no new jobs, or is about to end those that it has."""
        return bool(self.states & {"drain", "drained", "draining", "drng"})


def state_of(node: str) -> tuple[NodeState | None, str]:
    """Return the state of a node, or why it is not known."""
    text, problem = _run("sinfo", "--noheader", f"--nodes={node}", "--format=%T|%E")
    line = text.splitlines()[0] if text.strip() else ""
    if not line:
        return None, problem or f"sinfo does not list the node {node}"
    state, _, reason = line.partition("|")
    words = frozenset(state.lower().rstrip("*~#!%$@^-+").split("+"))
    return NodeState(words, "" if reason.strip().lower() == "none" else reason.strip()), ""


def drain(node: str, reason: str) -> str:
    """Drain a node; return why it failed, empty if it did not."""
    return _run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")[1]


def resume(node: str) -> str:
    """Resume a node; return why it failed, empty if it did not."""
    return _run("scontrol", "update", f"NodeName={node}", "State=RESUME")[1]


def _run(*command: str) -> tuple[str, str]:
    task = program(command, _COMMAND_S)
    finish([task])
    text, problem = output_of(task)
    silent = problem == "printed nothing"
    return text, "" if silent else f"{command[0]} {problem}" if problem else ""
