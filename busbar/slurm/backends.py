# SPDX-License-Identifier: MIT
"""What ReFrame lacks for Slurm; importing this module adds it to ReFrame.

Inside an allocation, a scheduler runs job scripts on this host, and their launcher starts the
ranks on nodes of the allocation. A node has one job at a time.

ReFrame stops waiting for jobs that will not end or start. A job whose node does not answer stays
in COMPLETING until Slurm gives the node up, which is minutes later. A job that requires a node
which is down waits for ever, but Slurm has the same reason (ReqNodeNotAvail) for a node that
another job is just leaving: ReFrame cancels either job, or none (``ignore_reqnodenotavail``). It
has no option for what this module does.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from contextlib import chdir
from pathlib import Path
from typing import Any

from reframe.core.backends import register_launcher, register_scheduler
from reframe.core.exceptions import JobBlockedError
from reframe.core.launchers import JobLauncher
from reframe.core.schedulers import Job
from reframe.core.schedulers.local import LocalJobScheduler
from reframe.core.schedulers.slurm import SlurmJobScheduler, slurm_state_pending

from busbar.slurm.client import answer, few_cpus
from busbar.slurm.nodes import FORMAT, Node, parse_nodes

SCHEDULER = "allocation"
LAUNCHER = "srun-step"
_PATIENCE_S = 45
_LOOK_S = 8
"""Between two looks at a waiting job; two in a row decide, as a node may miss an answer."""
_ended_by_reframe = SlurmJobScheduler.finished
_cancelled_by_reframe = SlurmJobScheduler._cancel_if_blocked


@register_scheduler(SCHEDULER)
class AllocationScheduler(LocalJobScheduler):
    """Starts a job as soon as no other one uses its nodes (``pin_nodes``)."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[Any, Path]] = []
        """Jobs, and the directories of their scripts; ReFrame takes jobs of one id for equal."""
        self._running: list[Any] = []
        self._count = 0

    def submit(self, job: Any) -> None:
        """Keep the job until its nodes are free."""
        self._waiting.append((job, Path.cwd()))
        self._count += 1
        job._jobid = -self._count  # a process id once it runs
        job._submit_time = time.time()
        job._state = "PENDING"

    def poll(self, *jobs: Any) -> None:
        """Look at the running jobs, then start those whose nodes are free."""
        super().poll(*(job for job in jobs if job is not None and job._jobid > 0))
        self._running = [job for job in self._running if not self.finished(job)]
        for job, directory in list(self._waiting):
            busy = {node for other in self._running for node in other.pin_nodes}
            if busy.isdisjoint(job.pin_nodes):
                self._waiting.remove((job, directory))
                self._running.append(job)
                with chdir(directory):
                    super().submit(job)
                job._nodelist = list(job.pin_nodes)

    def cancel(self, job: Any) -> None:
        """End the job, also one that waits."""
        if job._jobid < 0:
            self._waiting = [each for each in self._waiting if each[0] is not job]
            job._signal = signal.SIGTERM
        else:
            super().cancel(job)


@register_launcher(LAUNCHER)
class SrunStep(JobLauncher):
    """``srun`` inside an allocation, on the nodes of the job.

    A step of an outer ``srun`` may hold all CPUs and memory of the nodes: steps overlap.
    """

    def command(self, job: Job) -> list[str]:
        """Return the command."""
        per_node = job.num_tasks_per_node or job.num_tasks
        return [
            *("srun", "--overlap", "--mem=0", f"--nodes={len(job.pin_nodes)}"),
            f"--nodelist={','.join(job.pin_nodes)}",
            *(f"--ntasks={job.num_tasks}", f"--ntasks-per-node={per_node}"),
            *(["--overcommit"] if few_cpus(per_node) else []),
        ]


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
            what = "job cancelled because it was blocked due to reason: ReqNodeNotAvail"
            job._exception = JobBlockedError(f"{what}, {why}", jobid)


def _unavailable(jobs: Iterable[str]) -> dict[str, list[Node]]:
    """Return the nodes which each waiting job requires, and that Slurm cannot use."""
    if not jobs:
        return {}
    listed = answer("squeue", "--noheader", f"--jobs={','.join(jobs)}", "--format=%A|%n|%r")
    found: dict[str, list[Node]] = {}
    for line in listed.splitlines():
        jobid, required, reason = (*line.split("|", 2), "", "")[:3]
        found[jobid] = []
        if required and reason.startswith("ReqNodeNotAvail"):
            states = answer("sinfo", "--noheader", "--Node", f"--nodes={required}", FORMAT)
            found[jobid] = [node for node in parse_nodes(states) if not node.usable]
    return {jobid: nodes for jobid, nodes in found.items() if jobid in set(jobs)}


SlurmJobScheduler.finished = _finished
SlurmJobScheduler._cancel_if_blocked = _cancel_if_blocked
