# SPDX-License-Identifier: MIT
"""Drain this node for a fault, and resume it when the fault is gone: in a HealthCheckProgram."""

from __future__ import annotations

from busbar.gate.reason import own_check
from busbar.gate.run import Result
from busbar.gate.slurm import Slurm, drain, resume, state_of
from busbar.verdict import Verdict

COMMANDS_S = 8.0
"""How long draining or resuming can take: two commands of Slurm."""


def drain_node(result: Result, slurm: Slurm) -> str:
    """Drain the node for its faults; return what was done. A reason that it has is kept."""
    if slurm.healthy is not False:
        state, problem = state_of(slurm.node)
        if state is None:
            return f"cannot drain {slurm.node}: {problem}"
        if not state.is_drained:
            problem = drain(slurm.node, result.reason)
            return f"cannot drain {slurm.node}: {problem}" if problem else f"drained {slurm.node}"
    return f"{slurm.node} is out of service already; its reason is kept"


def resume_node(result: Result, slurm: Slurm) -> str:
    """Resume the node if the gate drained it and the fault is gone; return what was done."""
    state, problem = state_of(slurm.node)
    if state is None:
        return f"cannot recheck {slurm.node}: {problem}"
    if not state.is_drained:
        return f"{slurm.node} is in service"
    if why := _keeps(result, state.reason):
        return f"{slurm.node} stays drained: {why}"
    problem = resume(slurm.node)
    return f"cannot resume {slurm.node}: {problem}" if problem else f"resumed {slurm.node}"


def _keeps(result: Result, reason: str) -> str:
    """Return why a node stays drained; empty if it can be resumed."""
    check = own_check(reason)
    if check is None:
        return f"the gate did not drain it ({reason or 'no reason'})"
    if result.faults:
        return result.reason
    findings = [each.finding for each in result.checks if each.finding.check == check]
    if not findings:
        return f"{check} was not checked"
    if not all(finding.verdict is Verdict.PASS for finding in findings):
        return f"{check} is not known to be healthy"
    incomplete = (f"{check}: {finding.note}" for finding in findings if not finding.whole)
    return next(incomplete, "")
