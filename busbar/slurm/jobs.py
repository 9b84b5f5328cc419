# SPDX-License-Identifier: MIT
"""How Slurm says that a job ended, which need not have printed a word, and that a job waits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from busbar.parse import numbers
from busbar.slurm.nodes import value_of

_ENDED_BY_SOMEBODY = ("CANCELLED", "PREEMPTED")
_QUEUED = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
WAITING_FORMAT = "--format=%A|%T|%V|%j|%N|%Z|%r"
"""The option of ``squeue`` for :func:`parse_waiting`."""
_NOT_RUNNING = {"PENDING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED"}


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

    def with_state(self, accounted: str) -> JobEnd:
        """Return the end with the state of Slurm's accounting if that says more.

        A job that ``scancel`` ended is COMPLETING without a reason until its nodes are free.
        """
        said = self.state == "COMPLETING" and accounted in _ENDED_BY_SOMEBODY
        return replace(self, state=accounted) if said else self

    @property
    def refused(self) -> str:
        """One sentence if somebody ended the job, or it never started; else empty."""
        if self.nodes and self.state in _ENDED_BY_SOMEBODY:
            how = " (scancel)" if self.state == "CANCELLED" else ""
            return (
                f"the job on {self.nodes} was ended{self._after}{how}: {self.state}; run it again"
            )
        if self.nodes or self.state in ("COMPLETED", "FAILED", "", *_QUEUED):
            return ""
        waited = f" while it waited ({self.reason})" if self.reason else " before it started"
        return f"Slurm ended the job{waited}: {self.state}"

    @property
    def problem(self) -> str:
        """One sentence if the job did not run to its end; else empty."""
        match self.state, self.reason:
            case "COMPLETED" | "RUNNING", _:
                return ""
            case "FAILED", _:
                return f"the job ended with exit status {self.exit_status}"
            case "COMPLETING", reason:
                if not (reason or self.signal or self.exit_status):
                    return ""
                why = reason or f"exit status {self.exit_status}, signal {self.signal}"
                ended = f"the job on {self.nodes} ended{self._after} ({why})"
                return f"{ended}, and Slurm still waits for a node: see scontrol show node"
            case state, _ if state in _QUEUED:
                return f"Slurm put the job back into its queue: {state}{self._why}"
        return f"Slurm ended the job on {self.nodes}{self._after}: {self.state}{self._why}"

    def lost(self, held: str) -> str:
        """Return one sentence on a job that cannot end; ``held`` are the nodes that it holds."""
        nodes = held or self.nodes
        return (
            f"{nodes} does not answer Slurm: the job ended{self._after}{self._why} and stays"
            f" in COMPLETING; see scontrol show node {nodes}, then drain it"
        )

    @property
    def _after(self) -> str:
        return f" after {self.run_time}" if self.run_time else ""

    @property
    def _why(self) -> str:
        return f" ({self.reason})" if self.reason else ""


def parse_end(text: str) -> JobEnd | None:
    """Parse one line of ``scontrol --oneliner show job``; None if it is none."""
    state = re.search(r"\bJobState=(?P<state>\w+)", text)
    status = re.search(r"\bExitCode=(?P<code>\d+):(?P<signal>\d+)", text)
    if not state:
        return None
    return JobEnd(
        text.strip(),
        state["state"],
        numbers.count(status["code"]) if status else 0,
        value_of(text, "NodeList"),
        value_of(text, "Reason"),
        value_of(text, "RunTime"),
        numbers.count(status["signal"]) if status else 0,
    )


@dataclass(frozen=True)
class WaitingJob:
    """A job that does not run."""

    job: str
    state: str
    since: str
    """When it was submitted: ``2026-11-22T10:17:07``."""
    check: str
    nodes: str
    reason: str

    @property
    def text(self) -> str:
        """``waiting for fabric_ucx: job 90 is pending (Resources), submitted at 21:16:07``."""
        reason = f" ({self.reason})" if self.reason not in ("", "None") else ""
        place = f" on {self.nodes}" if self.nodes else ""
        clock = self.since.partition("T")[2]
        state = f"{self.state.lower()}{place}{reason}"
        return f"waiting for {self.check}: job {self.job} is {state}, submitted at {clock}"


def parse_waiting(text: str, directory: Path) -> list[WaitingJob]:
    """Parse ``squeue``: the jobs from below a directory that do not run."""
    jobs = []
    for line in text.splitlines():
        match line.strip().split("|", 6):
            case job, state, since, name, nodes, place, reason if state in _NOT_RUNNING:
                if Path(place).is_relative_to(directory):
                    # ReFrame adds a hash where a check has parameters.
                    check = re.sub(r"_[0-9a-f]{8}$", "", name.removeprefix("rfm_"))
                    jobs.append(WaitingJob(job, state, since, check, nodes, reason.strip()))
    return jobs
