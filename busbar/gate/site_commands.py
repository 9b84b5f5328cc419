# SPDX-License-Identifier: MIT
"""Run the commands with which a site checks its nodes; they end like plugins of Nagios."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from busbar.boundary import refuse_foreign_code
from busbar.errors import BusbarError
from busbar.gate import bounded
from busbar.gate.bounded import Output, Task, finish
from busbar.gate.findings import GateFinding
from busbar.gate.site import CommandRule
from busbar.verdict import Verdict

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
