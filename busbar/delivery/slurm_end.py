# SPDX-License-Identifier: MIT
"""Let ReFrame stop waiting for jobs that will not end or start; importing this module does so.

A job whose node does not answer stays in COMPLETING until Slurm gives the node up, which is
minutes later. A job that requires a node which is down waits for ever, but Slurm has the same
reason (ReqNodeNotAvail) for a node that another job is just leaving: ReFrame cancels either job,
or none (``ignore_reqnodenotavail``). It has no option for what this module does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from reframe.core.exceptions import JobBlockedError
from reframe.core.schedulers.slurm import SlurmJobScheduler, slurm_state_pending
from reframe.utility import osext

from busbar.parse.machine.sinfo import FORMAT, Node, parse_nodes

_PATIENCE_S = 45
_LOOK_S = 8
"""Between two looks at a waiting job; two in a row decide, as a node may miss an answer."""
_ended_by_reframe = SlurmJobScheduler.finished
_cancelled_by_reframe = SlurmJobScheduler._cancel_if_blocked


def _finished(self: SlurmJobScheduler, job: Any) -> bool:
    if _ended_by_reframe(self, job):
        return True
    if job.state != "COMPLETING":
        return False
    if not hasattr(job, "completing_since"):
        job.completing_since = time.monotonic()
    return bool(time.monotonic() - job.completing_since > _PATIENCE_S)


def _cancel_if_blocked(
    self: SlurmJobScheduler, jobs: Iterable[Any], reasons: dict[str, list[str]] | None = None
) -> None:
    _cancelled_by_reframe(self, jobs, reasons)
    now = time.monotonic()
    due = {}
    for job in jobs:
        if slurm_state_pending(job.state) and not job.is_cancelling:
            if not hasattr(job, "looked_at"):
                job.looked_at, job.blocked = now, False
            elif now - job.looked_at > _LOOK_S:
                due[job.jobid] = job
    for jobid, nodes in _unavailable(due).items():
        job = due[jobid]
        again = job.blocked
        job.looked_at, job.blocked = now, bool(nodes)
        if nodes and again:
            self.cancel(job)
            why = ", ".join(node.described for node in nodes)
            job._exception = JobBlockedError(
                f"job cancelled because it was blocked due to reason: ReqNodeNotAvail, {why}",
                jobid,
            )


def _unavailable(jobs: Iterable[str]) -> dict[str, list[Node]]:
    """Return the nodes which each waiting job requires, and that Slurm cannot use."""
    if not jobs:
        return {}
    listed = osext.run_command(f"squeue --noheader --jobs={','.join(jobs)} --format='%A|%n|%r'")
    found: dict[str, list[Node]] = {}
    for line in listed.stdout.splitlines():
        jobid, required, reason = (*line.split("|", 2), "", "")[:3]
        found[jobid] = []
        if required and reason.startswith("ReqNodeNotAvail"):
            states = osext.run_command(
                f"sinfo --noheader --Node --nodes={required} '{FORMAT}'"
            ).stdout
            found[jobid] = [node for node in parse_nodes(states) if not node.usable]
    return {jobid: nodes for jobid, nodes in found.items() if jobid in set(jobs)}


SlurmJobScheduler.finished = _finished
SlurmJobScheduler._cancel_if_blocked = _cancel_if_blocked
