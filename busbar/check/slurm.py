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

from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.sweep.hostlist import expand

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
    """Empty if it never started."""
    reason: str = ""
    """Why it waited or ended, in Slurm's word; empty if Slurm gives none."""
    run_time: str = ""
    """How long it ran: ``00:02:12``."""
    signal: int = 0
    """The signal that ended it; 0 if none did."""

    @property
    def refused(self) -> str:
        """One sentence if somebody ended the job, or it never started; else empty."""
        if self.nodes and self.state in ("CANCELLED", "PREEMPTED"):
            after = f" after {self.run_time}" if self.run_time else ""
            how = " (scancel)" if self.state == "CANCELLED" else ""
            return f"the job on {self.nodes} was ended{after}{how}: {self.state}; run it again"
        if self.nodes or self.state in ("PENDING", "COMPLETED", "FAILED", ""):
            return ""
        waited = f" while it waited ({self.reason})" if self.reason else " before it started"
        return f"Slurm ended the job{waited}: {self.state}"

    @property
    def problem(self) -> str:
        """One sentence if the job did not run to its end; else empty."""
        after = f" after {self.run_time}" if self.run_time else ""
        match self.state, self.reason:
            case "COMPLETED" | "RUNNING", _:
                return ""
            case "FAILED", _:
                return f"the job ended with exit status {self.exit_status}"
            case "COMPLETING", reason:
                if not (reason or self.signal or self.exit_status):
                    return ""
                why = reason or f"exit status {self.exit_status}, signal {self.signal}"
                ended = f"the job on {self.nodes} ended{after} ({why})"
                return f"{ended}, and Slurm still waits for a node: see scontrol show node"
        reason = f" ({self.reason})" if self.reason else ""
        return f"Slurm ended the job on {self.nodes}{after}: {self.state}{reason}"

    def lost(self, held: str) -> str:
        """Return one sentence on a job that cannot end; ``held`` are the nodes that it holds."""
        nodes = held or self.nodes
        after = f" after {self.run_time}" if self.run_time else ""
        reason = f" ({self.reason})" if self.reason else ""
        return (
            f"{nodes} does not answer Slurm: the job ended{after}{reason} and stays"
            f" in COMPLETING; see scontrol show node {nodes}, then drain it"
        )


def held_nodes(job: str) -> str:
    """Return the nodes that a job which is completing still holds; empty if Slurm does not say."""
    return answer(["squeue", "--noheader", f"--jobs={job}", "--format=%N"], _TIMEOUT_S).strip()


def job_end(job: str) -> JobEnd | None:
    """The end of a job; None where Slurm has forgotten it or is not here."""
    return parse(answer(["scontrol", "--oneliner", "show", "job", job], _TIMEOUT_S))


def hostnames(nodes: str) -> tuple[str, ...]:
    """Return the nodes of a list of Slurm's such as ``n[1-4],m7``; else the list itself."""
    try:
        return tuple(expand(nodes, "the nodes of a job"))
    except BusbarError:
        return (nodes,)


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
                answer(["scancel", *options, *jobs])
            time.sleep(_LOOK_S)


def _jobs(directory: Path) -> list[str]:
    listed = answer(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%A|%Z"])
    jobs = (line.strip().partition("|") for line in listed.splitlines())
    return [job for job, _, place in jobs if Path(place).is_relative_to(directory)]


def answer(command: Sequence[str], seconds: float = _CANCEL_S) -> str:
    """Return what a command of Slurm prints; nothing if it is missing or does not answer."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def parse(text: str) -> JobEnd | None:
    """The end of the job of one line of ``scontrol --oneliner show job``."""
    state = re.search(r"\bJobState=(?P<state>\w+)", text)
    status = re.search(r"\bExitCode=(?P<code>\d+):(?P<signal>\d+)", text)
    if not state:
        return None
    return JobEnd(
        text.strip(),
        state["state"],
        numbers.count(status["code"]) if status else 0,
        _value(text, "NodeList"),
        _value(text, "Reason"),
        _value(text, "RunTime"),
        numbers.count(status["signal"]) if status else 0,
    )


def _value(text: str, key: str) -> str:
    """Return the value of a key; empty if Slurm has none."""
    match = re.search(rf"(?:^|\s){key}=(?P<value>\S*)", text)
    return "" if not match or match["value"] in ("(null)", "None") else match["value"]
