# SPDX-License-Identifier: MIT
"""Let ReFrame stop waiting for jobs that Slurm has ended; importing this module does so.

A job whose node does not answer stays in COMPLETING until Slurm gives the node up, which is
minutes later, and ReFrame has no option to go on.
"""

from __future__ import annotations

import time
from typing import Any

from reframe.core.schedulers.slurm import SlurmJobScheduler

_PATIENCE_S = 45
_ended_by_reframe = SlurmJobScheduler.finished


def _finished(self: SlurmJobScheduler, job: Any) -> bool:
    if _ended_by_reframe(self, job):
        return True
    if job.state != "COMPLETING":
        return False
    if not hasattr(job, "completing_since"):
        job.completing_since = time.monotonic()
    return bool(time.monotonic() - job.completing_since > _PATIENCE_S)


SlurmJobScheduler.finished = _finished
