# SPDX-License-Identifier: MIT
"""The commands of a site that check a node, which end as plugins of Nagios do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from busbar.boundary import refuse_foreign_code
from busbar.errors import BusbarError
from busbar.gate.bounded import Output, Task, finish, program
from busbar.gate.findings import GateFinding
from busbar.gate.site import CommandRule
from busbar.verdict import Verdict

_STATUSES = {0: Verdict.PASS, 1: Verdict.DEGRADED, 2: Verdict.FAILED}
_MOST_TEXT = 200


def judge_commands(commands: Sequence[CommandRule], most_s: float) -> Iterator[GateFinding]:
    """Run all at the same time, and yield a finding for each."""
    tasks: dict[str, Task[Output]] = {}
    refused = {}
    for each in commands:
        try:
            refuse_foreign_code(Path(each.run[0]))
            tasks[each.name] = program(each.run, min(each.seconds, most_s))
        except (BusbarError, OSError) as error:
            refused[each.name] = str(error)
    finish(list(tasks.values()))
    for each in commands:
        yield _finding(each, tasks.get(each.name), refused.get(each.name, ""))


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
