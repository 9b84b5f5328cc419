# SPDX-License-Identifier: MIT
"""How PyTorch is started: by our program on one node, by ``torch.distributed.run`` on several."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from busbar.data import CHECKS
from busbar.delivery.programs import python_with_torch
from busbar.parse.events import Error, Rank, ReadingEvent, parse
from tests.said import ran

from .dry import ROOT, jobs, reframe

pytestmark = pytest.mark.run

PROGRAM = CHECKS / "src" / "torch_collectives.py"
SITE = """\
name: torch-site
description: two nodes that have PyTorch
family: mi300x
scheduler: slurm
partitions:
  - {{name: gpu, node_type: spx, nodes: 2, launcher: {launcher}}}
nodes_like: mi300x
fabric: {{provider: verbs, rails: 4, switches: one a rail, uplinks: none}}
deliveries:
  - {{kind: modules, stack: rocm, features: [torch]}}
"""


def job(tmp_path: Path, check: str, launcher: str = "srun") -> str:
    """The job script of a check on a site with PyTorch."""
    site = tmp_path / "torch-site"
    site.mkdir()
    (site / "site.yaml").write_text(SITE.format(launcher=launcher))
    shutil.copy(ROOT / "site" / "local" / "reframe.py", site)
    checks = CHECKS / "framework.py"
    done = reframe(tmp_path, site / "reframe.py", "-n", f"^{check}\\b", checks=checks)
    scripts = [path for path in jobs(tmp_path) if path.parent.name.rsplit("_", 1)[0] == check]
    assert len(scripts) == 1, done.stdout + done.stderr
    return scripts[0].read_text()


def test_one_node_needs_no_mpi(tmp_path):
    script = job(tmp_path, "framework")
    assert f"{PROGRAM} --start --ranks 8" in script
    assert "#SBATCH --ntasks=1\n" in script
    assert "srun" not in script


@pytest.mark.parametrize(
    ("launcher", "start"),
    [
        ("srun", "srun --cpu-bind=none --mpi=pmix --kill-on-bad-exit=1 "),
        ("mpirun", "mpirun -np 2 --bind-to none "),
    ],
)
def test_two_nodes_meet_on_the_first(tmp_path, launcher, start):
    script = job(tmp_path, "framework_nodes", launcher)
    assert f"\n{start}" in script
    assert "rendezvous.sh" in script
    assert "--nproc_per_node 8 --nnodes 2" in script
    assert f"{PROGRAM} --ranks 16" in script
    assert "#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=1\n" in script
    assert 'scontrol show hostnames "$SLURM_JOB_NODELIST" >hosts' in script


def with_torch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the Python that has PyTorch."""
    python = python_with_torch()
    if not python:
        pytest.skip("no PyTorch is here (BUSBAR_TORCH_PYTHON names a Python that has it)")
    # PyTorch 1.13 cannot read its own default of these two under Python 3.11.
    environment = os.environ | {"PET_TEE": "1", "PET_REDIRECTS": "1"}
    return ran(python, *arguments, env=environment)


@pytest.mark.parametrize("launcher", ["itself", "torchrun"])
def test_two_ranks_check_every_result(launcher):
    """For real on host memory, where a PyTorch is here."""
    start = [PROGRAM, "--start"]
    if launcher == "torchrun":
        start = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", PROGRAM]
    done = with_torch(
        *(*start, "--ranks", "2", "--backend", "gloo", "--sizes", "1M"),
        *("--collectives", "all_reduce,broadcast,sendrecv"),
    )
    # torchrun may put the rank before what it prints.
    lines = [line[line.find("{") :] for line in done.stdout.splitlines() if "{" in line]
    events = [parse(line) for line in lines]
    assert sorted(e.rank for e in events if isinstance(e, Rank)) == [0, 1], done.stderr
    readings = {e.operation: e for e in events if isinstance(e, ReadingEvent)}
    assert set(readings) == {"all_reduce", "broadcast", "sendrecv"}
    assert all(e.wrong == 0 and e.value > 0 for e in readings.values())
    assert done.returncode == 0


def test_a_rank_that_is_killed_ends_the_others():
    python = python_with_torch()
    if not python:
        pytest.skip("no PyTorch is here (BUSBAR_TORCH_PYTHON names a Python that has it)")
    command = [python, PROGRAM, "--start", "--ranks", "2", "--backend", "gloo", "--sizes", "64M"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        ranks = (parse(line) for line in running.stdout)
        killed = next(event.pid for event in ranks if isinstance(event, Rank) and event.rank == 1)
        os.kill(killed, signal.SIGKILL)
        assert running.wait(timeout=60) == 128 + signal.SIGKILL


def test_another_number_of_ranks_is_an_error_with_a_code():
    done = with_torch(PROGRAM, "--ranks", "2", "--backend", "gloo")
    assert done.returncode == 3
    assert parse(done.stdout.splitlines()[-1]) == Error(
        0, "rank-count", "asked for 2 ranks, 1 started"
    )
