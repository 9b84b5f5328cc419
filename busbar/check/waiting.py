# SPDX-License-Identifier: MIT
"""Say which jobs wait, for what, and since when; also those that do not come to their end."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from busbar.check.slurm import answer

_FIRST_S = 10
"""Shorter waits are usual."""
_AGAIN_S = 600
_POLL_S = 5
_FORMAT = "--format=%A|%T|%V|%j|%N|%Z|%r"
_SHOWN = {"PENDING", "COMPLETING", "SUSPENDED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED"}


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
        job, _, rest = line.strip().partition("|")
        fields = rest.split("|", 5)
        if len(fields) == 6 and fields[0] in _SHOWN and Path(fields[4]).is_relative_to(directory):
            state, since, name, nodes, _, reason = fields
            jobs.append(WaitingJob(job, state, since, _check(name), nodes, reason.strip()))
    return jobs


def _check(job_name: str) -> str:
    """Return the check of a job; ReFrame adds a hash where a check has parameters."""
    return re.sub(r"_[0-9a-f]{8}$", "", job_name.removeprefix("rfm_"))


@contextmanager
def shown(directory: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell about the waiting jobs from below a directory while the block runs."""
    done = threading.Event()

    def watch() -> None:
        first: dict[str, float] = {}
        last: dict[str, tuple[str, float]] = {}
        while not done.wait(_POLL_S):
            text = answer(["squeue", "--noheader", f"--user={os.getuid()}", _FORMAT])
            now = time.monotonic()
            for each in parse_waiting(text, directory):
                key = f"{each.job} {each.state}"
                line, shown_at = last.get(key, ("", 0.0))
                new = each.text != line or now - shown_at > _AGAIN_S
                if now - first.setdefault(key, now) >= _FIRST_S - _POLL_S and new:
                    last[key] = (each.text, now)
                    tell(each.text)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=_POLL_S)
