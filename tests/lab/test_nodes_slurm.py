# SPDX-License-Identifier: MIT
"""Every node of a cluster, the allocation that holds us, and jobs that cannot run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases import sampled
from tests.said import ran

from .common import LAB, ROOT, Run
from .test_checks_slurm import CHECKS, SITE, Cluster, cluster, ended, messages  # noqa: F401

pytestmark = pytest.mark.lab
PAIRS = ("-c", CHECKS / "fabric_ucx.py", "-n", "fabric_ucx_nodes")
LINKS = ("-c", CHECKS / "link_matrix.py", "-n", "link_matrix_nodes")


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[str]:  # noqa: F811 - the fixture
    """A node that an administrator has drained."""
    cluster.control("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=bad fan")
    yield "n4"
    cluster.control("scontrol", "update", "NodeName=n4", "State=RESUME")


def test_the_drained_node_is_listed(
    cluster: Cluster,  # noqa: F811 - the fixture
    drained: str,
    tmp_path: Path,
) -> None:
    """All pairs of the three other nodes, whose site says nothing of their network."""
    status, document = cluster.check(tmp_path, "srun", *LINKS, "--nodelist", "all")
    assert status == 3, messages(document)
    assert document["coverage"] == f"3 of 4 nodes tested, 1 cannot be: {drained} drained (bad fan)"
    places = {row["where"] for row in document["results"] if row["verdict"] == "unjudged"}
    assert {",".join(sorted(place.split(","))) for place in places} == {"n1,n2", "n2,n3", "n1,n3"}
    assert {row["partition"] for row in document["results"]} == {"lab"}


def test_the_head_detects_the_site_of_the_cluster(
    cluster: Cluster,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """A job on a node describes the node; a check runs on the site as it was written."""
    words = (sys.executable, "-m", "busbar", "site", "detect", "--output", tmp_path / "lab")
    done = ran(LAB / "run", cluster.lab, *words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "is what Slurm states" not in done.stderr
    site = yaml.safe_load((tmp_path / "lab" / "site.yaml").read_text())
    (partition,) = site["partitions"]
    access = ["--partition=lab", "--gres=gpu:4"]
    assert partition == {"name": "lab", "node_type": "lab", "access": access, "nodes": 4}
    node = site["node_types"]["lab"]
    assert (site["scheduler"], node["cores"], node["sockets"]) == ("slurm", 4, 1)
    only = ("-c", CHECKS / "fabric_ucx.py", "-n", "^fabric_ucx$", "--nodelist", "n2")
    _, document = cluster.check(tmp_path / "out", "srun", *only, "--site", tmp_path / "lab")
    assert {row["where"] for row in document["results"]} == {"n2"}, messages(document)
    assert document["coverage"] == "1 of 1 node tested"


def test_a_link_at_a_fifth_of_its_rate_is_degraded(
    cluster: Cluster,  # noqa: F811 - the fixture
    lab: Path,
    tmp_path: Path,
) -> None:
    """Of two nodes, by the rate of the port; the site lints clean."""
    site = cluster.site("srun").with_name("lab-tcp")
    site.mkdir()
    text = SITE.format(name=site.name, launcher="srun").replace(
        "{cores: 2}", "{cores: 2, nics: [{name: eth0, class: eth-1g}]}"
    )
    (site / "site.yaml").write_text(f"{text}fabric: {{provider: tcp, rails: 1}}\n")
    shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
    lint = [sys.executable, "-m", "busbar", "site", "lint", site]
    assert subprocess.run(lint, check=False, capture_output=True).returncode == 0
    options = ("--site", site, *PAIRS, "--nodelist", "n1,n2", "--max-retries", "0")
    subprocess.run([LAB / "shape", lab, "n2", "200mbit"], check=True)
    try:
        status, document = cluster.check(tmp_path, "srun", *options)
    finally:
        subprocess.run([LAB / "shape", lab, "n2", "none"], check=True)
    assert (status, document["verdict"]) == (1, "degraded"), messages(document)
    assert "of the rate of the port; 25% is the minimum" in messages(document)


def test_a_run_stays_in_the_allocation_that_holds_the_last_nodes(
    cluster: Cluster,  # noqa: F811 - the fixture
    on_lab: Run,
    tmp_path: Path,
) -> None:
    """Of a batch job on two nodes, with another job on the other two."""
    on_lab("sbatch", "-w", "n1,n2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    words = [sys.executable, "-m", "busbar", "check", "--json", "--site", cluster.site("srun")]
    words += ["--output", tmp_path / "out", *PAIRS[:2]]
    command = f"cd {ROOT} && {' '.join(map(str, words))}"
    output = tmp_path / "said"
    try:
        batch = ("sbatch", "--wait", "--exclusive", "-w", "n3,n4", "-o", output)
        on_lab(*batch, "--wrap", f"{command} 2>/dev/null")
    finally:
        on_lab("scancel", "-u", "root")
    document: dict[str, Any] = json.loads(output.read_text())
    assert {row["where"] for row in document["results"]} == {"n3", "n4", "n3,n4"}
    assert all(row["gb_per_s"] > 0 for row in document["results"]), messages(document)
    assert document["coverage"] == "2 of 2 nodes tested"


@sampled(
    3,
    ("options", "words"),
    [
        (("--sbatch", "--partition=labb"), "invalid partition specified: labb"),
        (("--reservation", "upd"), "Requested reservation is invalid"),
        (("--nodelist", "n4"), " (bad fan): Slurm cannot start a job on it"),
    ],
)
def test_what_slurm_refuses_is_not_run_in_its_own_words(
    cluster: Cluster,  # noqa: F811 - the fixture
    drained: str,
    tmp_path: Path,
    options: tuple[str, ...],
    words: str,
) -> None:
    only = ("-c", CHECKS / "fabric_ucx.py", "-n", "^fabric_ucx$")
    status, document = cluster.check(tmp_path, "srun", *only, *options)
    assert (status, document["verdict"]) == (2, "not run"), messages(document)
    assert words in messages(document)


def test_a_partition_and_a_reservation_choose_the_nodes(
    cluster: Cluster,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """Of a site with two partitions; only jobs of the reservation get its node."""
    site = tmp_path / "two"
    site.mkdir()
    text = SITE.format(name="two", launcher="srun").replace(
        "node_types:", "  - {name: other, node_type: node, nodes: 2, launcher: srun}\nnode_types:"
    )
    (site / "site.yaml").write_text(text)
    shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
    only = ("-c", CHECKS / "fabric_ucx.py", "-n", "^fabric_ucx$", "--partition", "other")
    reservation = ("ReservationName=upd", "StartTime=now", "Duration=60", "Users=root")
    cluster.control("scontrol", "create", "PartitionName=other", "Nodes=n[2-3]", "State=UP")
    try:
        cluster.control("scontrol", "create", "reservation", *reservation, "Nodes=n3")
        given = ("--site", site, "--reservation", "upd", *only)
        _, document = cluster.check(tmp_path / "out", "srun", *given)
    finally:
        cluster.control("scontrol", "delete", "ReservationName=upd")
        cluster.control("scontrol", "delete", "PartitionName=other")
    places = {(row["partition"], row["where"]) for row in document["results"]}
    assert places == {("other", "n3")}, messages(document)
    assert document["coverage"] == "1 of 2 nodes tested"
    script = next((tmp_path / "out").rglob("rfm_job.sh")).read_text()
    assert "#SBATCH --partition=other" in script
    assert "#SBATCH --reservation=upd" in script


def test_a_job_that_waits_too_long_is_not_run(
    cluster: Cluster,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """It is cancelled, and what it waited for is shown."""
    cluster.control("sbatch", "--exclusive", "-N4", "-o", "/dev/null", "--wrap", "sleep 600")
    only = ("-c", CHECKS / "fabric_ucx.py", "-n", "^fabric_ucx$", "--max-pending", "5s")
    try:
        process = cluster.start(tmp_path, "srun", *only)
        status, document = ended(process)
    finally:
        cluster.control("scancel", "-u", "root")
    assert (status, document["verdict"]) == (2, "not run"), messages(document)
    assert "while it waited (Resources): CANCELLED, after --max-pending" in messages(document)
