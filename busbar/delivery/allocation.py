# SPDX-License-Identifier: MIT
"""Jobs inside an allocation of Slurm; importing this module adds them to ReFrame.

The scheduler runs job scripts on this host, and their launcher starts the ranks on nodes of the
allocation. A node has one job at a time.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

from reframe.core.backends import register_launcher, register_scheduler
from reframe.core.launchers import JobLauncher
from reframe.core.schedulers import Job
from reframe.core.schedulers.local import LocalJobScheduler

from busbar.parse import numbers

SCHEDULER = "allocation"
LAUNCHER = "srun-step"


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
        few = min(_cpus(os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")), default=per_node)
        return [
            *("srun", "--overlap", "--mem=0", f"--nodes={len(job.pin_nodes)}"),
            f"--nodelist={','.join(job.pin_nodes)}",
            *(f"--ntasks={job.num_tasks}", f"--ntasks-per-node={per_node}"),
            *(["--overcommit"] if few < per_node else []),
        ]


def _cpus(text: str) -> list[int]:
    """Return the CPUs per node of ``SLURM_JOB_CPUS_PER_NODE``: ``[4, 2]`` of ``4(x3),2``."""
    return [numbers.count(number) for number in re.findall(r"(?:^|,)(?P<cpus>\d+)", text)]
