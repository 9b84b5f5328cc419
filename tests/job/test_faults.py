# SPDX-License-Identifier: MIT
"""A part of the trial of tests/bench/job_faults.py: faults in jobs of MPI on this machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.bench.job_faults import main

GROUPS = Path("/sys/fs/cgroup/cpu")


@pytest.mark.run
@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access(GROUPS, os.W_OK),
    reason="needs root, for network namespaces, and control groups of version 1",
)
def test_faults_of_mpi_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = "stopped,tcp,disk_full,small_messages"
    assert main(["--places", "1", "--healthy", "1", "--only", kinds]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["faults"], found["right"], found["accused"]) == (3, 3, 0)
    assert found["longest_s"] < 10
