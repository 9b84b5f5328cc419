# SPDX-License-Identifier: MIT
"""A cluster with accounting, control groups and partitions of several kinds of nodes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.said import ran

from .common import LAB, ROOT
from .test_checks_slurm import CHECKS, messages

pytestmark = [pytest.mark.lab, pytest.mark.long]
SITE = """\
name: {name}
description: two kinds of nodes
family: generic
scheduler: slurm
partitions:
{partitions}
node_types:
  node: {{cores: 2}}
deliveries:
  - {{kind: wheels, stack: host}}
"""
ALONE = ("-c", CHECKS / "fabric_ucx.py", "-n", "^fabric_ucx$")
BETWEEN = ("-c", CHECKS / "link_matrix.py", "-n", "link_matrix_nodes")
ACCOUNT = ("--sbatch", "--account=ops --qos=maint")


@pytest.fixture(scope="module")
def center(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cluster: account ops, QOS maint, n1 and n2 with four GPUs, n3 and n4 with two."""
    if not os.access("/sys/fs/cgroup/cpuset/cgroup.procs", os.W_OK):
        pytest.skip("this machine has no control groups of version 1 that can be written")
    directory = tmp_path_factory.mktemp("center") / "cluster"
    ran(LAB / "up", "-a", directory, check=True)
    yield directory
    subprocess.run([LAB / "down", directory], check=True)


PARTITION = "  - {{name: {name}, node_type: node, nodes: 2, launcher: {launcher}{access}}}"


def site(
    directory: Path,
    launcher: str = "srun",
    gpus: int = 2,
    partitions: tuple[str, ...] = ("lab", "big"),
) -> Path:
    """A site of the cluster; with both partitions, their jobs ask for GPUs."""
    path = directory / "center"
    path.mkdir(exist_ok=True)
    access = {
        name: f", access: [--gres=gpu:{gpus if name == 'big' else 4}]" if partitions[1:] else ""
        for name in partitions
    }
    lines = [
        PARTITION.format(name=name, launcher=launcher, access=access[name]) for name in partitions
    ]
    text = SITE.format(name=path.name, partitions="\n".join(lines))
    (path / "site.yaml").write_text(text)
    shutil.copy(ROOT / "site" / "local" / "reframe.py", path)
    return path


def on(center: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMPI_MCA_mpi_yield_when_idle": "1"}
    return ran(LAB / "run", center, *words, cwd=ROOT, timeout=900, env=environment)


def command(site: Path, output: Path, *options: object) -> list[object]:
    words = ["check", "--json", "--site", site, "--output", output, *options]
    return [sys.executable, "-m", "busbar", *words]


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


def test_accounting_control_groups_and_gres(center: Path, tmp_path: Path) -> None:
    """Each node with the GPUs of its partition, bound to CPUs by a control group."""
    words = command(site(tmp_path), tmp_path / "out", *ALONE, *ACCOUNT, "--nodelist", "all")
    done = document(on(center, *words))
    places = {(row["partition"], row["where"]) for row in done["results"]}
    assert places == {("lab", "n1"), ("lab", "n2"), ("big", "n3"), ("big", "n4")}
    assert all(row["gb_per_s"] > 0 for row in done["results"]), messages(done)
    sacct = on(center, "sacct", "-X", "-n", "-P", "-o", "Account,QOS,Partition,AllocTRES,State")
    jobs = [line.split("|") for line in sacct.stdout.splitlines()]
    assert {tuple(job[:3]) for job in jobs} == {("ops", "maint", "lab"), ("ops", "maint", "big")}
    for _, _, partition, resources, state in jobs:
        assert state == "COMPLETED"
        assert f"gres/gpu={4 if partition == 'lab' else 2}," in resources
    groups = on(center, "srun", "-A", "ops", "-n2", "cat", "/proc/self/cgroup").stdout
    assert "cpuset:/slurm_n1/" in groups


@pytest.mark.parametrize(
    ("gpus", "sbatch", "words"),
    [
        (2, "--account=nobody", "Invalid account or account/partition combination specified"),
        (2, "--account=ops --qos=none", "Invalid qos specification"),
        (4, "--account=ops", "Requested node configuration is not available"),
    ],
)
def test_what_accounting_and_gres_refuse(
    center: Path, tmp_path: Path, gpus: int, sbatch: str, words: str
) -> None:
    call = command(site(tmp_path, gpus=gpus), tmp_path / "out", *ALONE, "--sbatch", sbatch)
    done = on(center, *call, "--nodelist", "n3")
    assert (done.returncode, document(done)["verdict"]) == (2, "not run"), done.stdout
    assert words in messages(document(done))


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_salloc_runs_on_its_nodes(center: Path, tmp_path: Path, launcher: str) -> None:
    words = command(site(tmp_path, launcher), tmp_path / "out", *BETWEEN)
    done = document(on(center, "salloc", "-A", "ops", "-N2", "-p", "big", "--exclusive", *words))
    assert done["coverage"] == "2 of 2 nodes tested"
    rates = {row["where"]: row["gb_per_s"] for row in done["results"]}
    assert set(rates) == {"n3,n4", "n4,n3"}, messages(done)
    assert all(rate > 0 for rate in rates.values())


def test_each_task_of_an_array_is_an_allocation(center: Path, tmp_path: Path) -> None:
    """Slurm gives one number for the array and for its last task."""
    words = command(site(tmp_path), tmp_path / "out", *ALONE)
    call = shlex.join(map(str, words)).replace(f"{tmp_path}/out", f"{tmp_path}/out$SLURM_JOB_ID")
    batch = ("sbatch", "--wait", "--array=0-1", "-A", "ops", "-N1", "--exclusive")
    ended = f"echo $SLURM_JOB_ID >{tmp_path}/$SLURMD_NODENAME"
    on(center, *batch, "-o", "/dev/null", "--wrap", f"cd {ROOT} && {call}; {ended}")
    for node in ("n1", "n2"):
        job = (tmp_path / node).read_text().strip()
        done = json.loads((tmp_path / f"out{job}" / "results.json").read_text())
        assert {row["where"] for row in done["results"]} == {node}
        assert done["coverage"] == "1 of 1 node tested"
