# SPDX-License-Identifier: MIT
"""``busbar job`` on a job of Slurm: a step on each of its nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from .common import LAB, ROOT
from .test_checks_slurm import Cluster, cluster  # noqa: F401

pytestmark = pytest.mark.lab
RANK = """
import os, signal, time
time.sleep(1)
if os.environ["SLURM_PROCID"] == "2":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(300)
"""


def test_a_stopped_rank_is_named(cluster: Cluster) -> None:  # noqa: F811 - the fixture
    words = ("sbatch", "--parsable", "--output=/dev/null", "-N2", "-n4", "--wrap")
    job = cluster.control(*words, f"srun python3 -c '{RANK}'")
    try:
        time.sleep(6)
        command = [LAB / "run", cluster.lab, sys.executable, "-m", "busbar", "job", "--json"]
        done = subprocess.run(
            [*command, job.strip()], capture_output=True, text=True, check=False, cwd=ROOT
        )
        found = json.loads(done.stdout)
    finally:
        cluster.control("scancel", job.strip())
    assert done.returncode == 1
    assert found["nodes"] == ["n1", "n2"]
    assert [(c["id"], c["details"]["ranks"]) for c in found["causes"]] == [("rank-stopped", [2])]
    assert len(found["ranks"]) == 4
    assert found["unseen"] == []
