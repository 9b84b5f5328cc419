# SPDX-License-Identifier: MIT
"""How Slurm says that a job ended: a job that it kills need not have printed a word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from busbar.parse import numbers

_TIMEOUT_S = 30
_CANCEL_S = 5
_LOOKS = 5
_LOOK_S = 0.2


@dataclass(frozen=True)
class JobEnd:
    """What ``scontrol show job`` keeps of a job for some minutes after its end."""

    line: str
    """All of it."""
    state: str
    """``COMPLETED``, ``FAILED``, ``TIMEOUT``, ``NODE_FAIL``..."""
    exit_status: int
    nodes: str

    @property
    def problem(self) -> str:
        """One sentence where the job did not run to its end; empty where it did."""
        if self.state in ("COMPLETED", "COMPLETING", "RUNNING"):
            return ""
        if self.state == "FAILED":
            return f"the job ended with exit status {self.exit_status}"
        return f"Slurm ended the job on {self.nodes}: {self.state}"


def job_end(job: str) -> JobEnd | None:
    """The end of a job; None where Slurm has forgotten it or is not here."""
    try:
        done = subprocess.run(
            ["scontrol", "--oneliner", "show", "job", job],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse(done.stdout)


def cancel_jobs(directory: Path) -> None:
    """Cancel the jobs of this user that were submitted from below a directory, also queued ones.

    SIGKILL follows for those that do not end of SIGTERM.
    """
    if not shutil.which("squeue"):
        return
    for options in ([], ["--full", "--signal=KILL"]):
        for look in range(_LOOKS):
            jobs = _jobs(directory)
            if not jobs:
                return
            if not look:
                _call(["scancel", *options, *jobs])
            time.sleep(_LOOK_S)


def _jobs(directory: Path) -> list[str]:
    listed = _call(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%A|%Z"])
    jobs = (line.strip().partition("|") for line in listed.splitlines())
    return [job for job, _, place in jobs if Path(place).is_relative_to(directory)]


def _call(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_CANCEL_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def parse(text: str) -> JobEnd | None:
    """The end of the job of one line of ``scontrol --oneliner show job``."""
    state = re.search(r"\bJobState=(?P<state>\w+)", text)
    status = re.search(r"\bExitCode=(?P<code>\d+):", text)
    nodes = re.search(r"\bNodeList=(?P<nodes>\S+)", text)
    if not state:
        return None
    return JobEnd(
        text.strip(),
        state["state"],
        numbers.count(status["code"]) if status else 0,
        nodes["nodes"] if nodes else "no node",
    )
