# SPDX-License-Identifier: MIT
"""Launchers that ReFrame lacks; importing this module registers them."""

from __future__ import annotations

from reframe.core.backends import register_launcher
from reframe.core.launchers import JobLauncher
from reframe.core.schedulers import Job


@register_launcher("flux-run")
class FluxRun(JobLauncher):
    """``flux run``, within an allocation of Flux."""

    def command(self, job: Job) -> list[str]:
        """Return the command: all resources of each node belong to the ranks."""
        nodes = max(1, job.num_tasks // (job.num_tasks_per_node or job.num_tasks))
        return ["flux", "run", f"--nodes={nodes}", f"--ntasks={job.num_tasks}", "--exclusive"]
