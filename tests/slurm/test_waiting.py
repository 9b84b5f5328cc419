# SPDX-License-Identifier: MIT
"""Jobs that wait are shown with Slurm's reason; those of others are not."""

from __future__ import annotations

from pathlib import Path

from busbar.slurm.jobs import parse_waiting

# As Slurm 22.05.8 prints it.
SQUEUE = """\
7|PENDING|2026-11-22T10:17:10|rfm_fabric_ucx||/out/reframe/stage/a|ReqNodeNotAvail, UnavailableNodes:n3
8|PENDING|2026-11-22T10:17:11|wrap||/tmp|Resources
9|RUNNING|2026-11-22T10:17:12|rfm_memory|n1|/out/reframe/stage/b|None
10|COMPLETING|2026-11-22T10:17:13|rfm_memory|n2|/out/reframe/stage/b|None
slurm_load_jobs error: Unable to contact slurm controller (connect failure)
"""  # noqa: E501


def test_the_waiting_jobs_of_a_run() -> None:
    lines = [job.text for job in parse_waiting(SQUEUE, Path("/out"))]
    assert lines == [
        "waiting for fabric_ucx: job 7 is pending (ReqNodeNotAvail, UnavailableNodes:n3),"
        " submitted at 10:17:10",
        "waiting for memory: job 10 is completing on n2, submitted at 10:17:13",
    ]
