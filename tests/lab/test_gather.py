# SPDX-License-Identifier: MIT
"""The commands of docs/start/bad-number.md collect a failed job, whose sources explain joins.

The lab has no GPUs, InfiniBand or journal: programs of these names print what theirs would.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.files import executable

from .common import ROOT
from .test_center_slurm import center, on  # noqa: F401 - the fixture

pytestmark = [pytest.mark.lab, pytest.mark.long]
PAGE = ROOT / "docs" / "start" / "bad-number.md"
RECIPE = re.compile(r"```\n(mkdir 4711.*?)\nbusbar explain 4711\n```", re.DOTALL)
JOB = "srun sh rank"
RANK = """\
at=$(hostname):$$:$$ rank=$SLURM_PROCID
echo "$at [0] NCCL INFO comm 0x5 rank $rank nranks 2 cudaDev 0 nvmlDev 0 busId 5d000 - Init START"
kernel="$(date +%FT%T%z) $(hostname) kernel:"
if [ "$rank" = 1 ]; then
    echo "$kernel NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus." >n2.kernel
    echo "[rank1]: torch.AcceleratorError: CUDA error: unspecified launch failure" >&2
    exit 1
fi
echo "$kernel eth0: link becomes ready" >n1.kernel
sleep 2
echo "[rank0]: torch.distributed.DistBackendError: NCCL error in: a.cpp:9, remote process" >&2
exit 1
"""
TOOLS = {
    "journalctl": "cat ../$(hostname).kernel ./$(hostname).kernel 2>/dev/null",
    "ibstat": """printf "CA 'mlx5_0'\\n\\tPort 1:\\n\\t\\tState: Active\\n" """,
    "nvidia-smi": "printf 'GPU 0: NVIDIA H100\\n\\t Link 0: 26.562 GB/s\\n'",
}


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SLURM", "SBATCH"):
        monkeypatch.setenv(f"{variable}_ACCOUNT", "ops")
        monkeypatch.setenv(f"{variable}_QOS", "maint")


def test_a_job_that_a_user_cancels_did_not_run(center: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "job").write_text("#!/bin/sh\nscontrol show job $SLURM_JOB_ID\nsrun sleep 300\n")
    job = f"sbatch --parsable -N2 -w n1,n2 -D {tmp_path} {tmp_path}/job"
    number = on(center, "sh", "-c", job).stdout.strip()
    running = f"until squeue -hs -j {number} | grep -q '{number}\\.0 '; do sleep 0.2; done"
    ended = f"while squeue -h -j {number} | grep -q .; do sleep 0.2; done"
    assert not on(center, "sh", "-c", f"{running}; scancel {number}; {ended}").returncode
    said = on(center, sys.executable, "-m", "busbar", "explain", tmp_path / f"slurm-{number}.out")
    assert said.returncode == 2, said.stdout
    assert said.stdout.startswith("not run: ")
    assert f"JOB {number} ON n1 CANCELLED AT" in said.stdout


def test_the_recipe_collects_a_failed_job(
    center: Path,  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in {"job": JOB, "rank": RANK, **TOOLS}.items():
        executable(tmp_path / name, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    begin = f"cd {tmp_path}; "
    submitted = on(center, "sh", "-c", f"{begin}sbatch --parsable --wait -N2 -n2 -w n1,n2 job")
    number = submitted.stdout.strip()
    recipe = RECIPE.search(PAGE.read_text())
    assert recipe
    done = on(center, "sh", "-c", begin + recipe[1].replace("4711", number))
    assert done.returncode == 0, done.stderr
    files = {each.name for each in (tmp_path / number).iterdir()}
    assert files == {f"slurm-{number}.out", "sacct", "n1.log", "n2.log"}
    said = on(center, sys.executable, "-m", "busbar", "explain", "--json", tmp_path / number)
    found = json.loads(said.stdout)
    first = found["causes"][0]
    assert (found["verdict"], first["id"]) == ("failed", "gpu-fault"), said.stdout
    assert (first["host"], first["rank"]) == ("n2", 1), first
    assert first["time"], first
    evidence = {Path(line["file"]).name for line in first["evidence"]}
    assert "n2.log" in evidence, first
