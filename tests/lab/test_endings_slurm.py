# SPDX-License-Identifier: MIT
"""How a job can end on a cluster: each end is told in its own words, soon after Slurm knows it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .test_checks_slurm import Cluster, cluster, ended, hanging, messages, only  # noqa: F401

pytestmark = [pytest.mark.lab, pytest.mark.long]
Start = Callable[[str], tuple[str, Any]]
SOON_S = 60
"""Between what Slurm knows and the end of the run."""


def test_a_cancelled_job_is_not_run(cluster: Cluster, hanging: Start) -> None:  # noqa: F811
    """And nobody looks for a fault of the machine. It cannot be requeued: it would run twice."""
    job, process = hanging("cancelled")
    with pytest.raises(subprocess.CalledProcessError):
        cluster.control("scontrol", "requeue", job)
    cluster.control("scancel", job)
    known = time.monotonic()
    status, document = ended(process)
    assert time.monotonic() - known < SOON_S
    assert (status, document["verdict"]) == (2, "not run"), messages(document)
    assert "was ended after 00:0" in messages(document)
    assert "(scancel): CANCELLED; run it again" in messages(document)
    assert not document["causes"]


@pytest.mark.parametrize("end", ["cancelled", "limit"])
def test_a_node_that_does_not_answer_is_named(
    cluster: Cluster,  # noqa: F811 - the fixture
    hanging: Start,  # noqa: F811 - the fixture
    end: str,
) -> None:
    """Its job stays in COMPLETING."""
    job, process = hanging(end)
    node = cluster.control("squeue", "-h", "-j", job, "-o", "%N").strip()
    cluster.on_node(node, "pkill", "-x", "-KILL", "slurmd")
    try:
        if end == "cancelled":
            cluster.control("scancel", job)
        else:
            cluster.control("scontrol", "update", f"JobId={job}", "EndTime=now+1")
        while "COMPLETING" not in cluster.control("squeue", "-h", "-j", job, "-o", "%T"):
            assert process.poll() is None
            time.sleep(0.5)
        known = time.monotonic()
        status, document = ended(process)
        assert time.monotonic() - known < SOON_S
    finally:
        cluster.on_node(node, "sh", "-c", f"setsid slurmd -N {node} >/dev/null 2>&1 </dev/null")
        cluster.wait_for_idle(node)
    assert (status, document["verdict"]) == (1, "failed"), messages(document)
    assert f"{node} does not answer Slurm: the job ended after 00:0" in messages(document)
    assert ("(TimeLimit)" in messages(document)) == (end == "limit")
    assert f"see scontrol show node {node}, then drain it" in messages(document)
    assert not document["causes"]


def test_a_controller_that_is_restarted_costs_nothing(
    cluster: Cluster,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """While it is away, jobs run on and Busbar waits for it."""
    process = cluster.start(tmp_path, "srun", *only("fabric_ucx", "^fabric_ucx$"))
    while "RUNNING" not in cluster.control("squeue", "-h", "-o", "%T"):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    cluster.control("pkill", "-x", "slurmctld")
    time.sleep(8)
    cluster.control("sh", "-c", "setsid slurmctld >/dev/null 2>&1 </dev/null")
    status, document = ended(process)
    assert (status, document["verdict"]) == (3, "unjudged"), messages(document)
    assert all(row["gb_per_s"] > 0 for row in document["results"])
