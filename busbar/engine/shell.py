# SPDX-License-Identifier: MIT
"""What a job script prints of itself: commands, exported variables, its exit status."""

from __future__ import annotations

from busbar.engine.job_output import ExitStatus
from busbar.engine.recent import Recent
from busbar.engine.runs import Runs
from busbar.parse import launch
from busbar.parse.text import decode


def read_shell(runs: Runs, recent: Recent, number: int, line: bytes) -> None:
    """Note the exit status, the variable or the command in a line; these can begin a run."""
    text, run = decode(line), runs.current
    evidence = runs.evidence(number, line)
    status = launch.parse_exit_status(text)
    if status is not None:
        if run.exit_status is None or run.exit_status.code == 0:
            run.exit_status = ExitStatus(status, evidence)
        return
    exported = launch.parse_export(text)
    if not exported and text.endswith("\\"):
        text = " ".join((text, *map(decode, recent.continued(number))))
    command = None if exported else launch.parse_command(text)
    if not (exported or command):
        return
    if run.exit_status or (run.readings and (command or (exported and exported.by_shell))):
        run = runs.begin()
    if exported:
        run.note_setting(exported.name, exported.value, evidence)
    if command:
        run.commands.append((command, evidence))
        for name, value in command.environment.items():
            run.note_setting(name, value, evidence)
