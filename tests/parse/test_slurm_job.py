# SPDX-License-Identifier: MIT
"""What Slurm's word on the end of a job makes of a run that printed nothing wrong."""

from __future__ import annotations

import pytest

from busbar.check.slurm import job_end, parse

# As Slurm 22.05.8 prints it, the fields between left out.
LINE = "JobId=7 JobName=rfm_link_matrix JobState={state} Reason=None ExitCode={code}:0 NodeList=n1"


@pytest.mark.parametrize(
    ("state", "code", "problem"),
    [
        ("COMPLETED", 0, ""),
        ("FAILED", 3, "the job ended with exit status 3"),
        ("TIMEOUT", 0, "Slurm ended the job on n1: TIMEOUT"),
        ("NODE_FAIL", 0, "Slurm ended the job on n1: NODE_FAIL"),
        ("OUT_OF_MEMORY", 0, "Slurm ended the job on n1: OUT_OF_MEMORY"),
    ],
)
def test_the_end_of_a_job(state, code, problem):
    end = parse(LINE.format(state=state, code=code))
    assert end is not None
    assert end.problem == problem


def test_a_job_that_slurm_has_forgotten(monkeypatch):
    assert parse("slurm_load_jobs error: Invalid job id specified") is None
    monkeypatch.setenv("PATH", "")
    assert job_end("7") is None
