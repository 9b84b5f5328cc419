# SPDX-License-Identifier: MIT
"""Job scripts of an image on a site whose scheduler is Slurm and whose launcher is mpirun."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from busbar import site as sites
from busbar.data import CHECKS
from busbar.delivery.environment import Image
from busbar.delivery.reframe import image_environment, site_configuration, write
from busbar.preflight.model import Fingerprint, PreflightReport
from tests.said import ran

from ..files import written
from .cases import REAL_LIBRARIES, Case
from .trees import fingerprint

pytestmark = REAL_LIBRARIES
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "/opt/busbar/bin/gpu_aware"


@pytest.fixture
def script(
    cuda: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    """The script of one check, with an image of which preflight has said how it is launched."""
    fingerprint(cuda.image, "cuda")
    image = Image(
        reference=str(cuda.image),
        runtime="apptainer",
        fingerprint=Fingerprint(
            stack="cuda", lane="ucx-1.14", delivery="wheels", features=["gpu_aware"]
        ),
        programs={"gpu_aware": PROGRAM},
        settings={},
        preflight=TypeAdapter(PreflightReport).validate_python(cuda.run()),
    )
    # The other delivery is that of the wheels; a dry run compiles nothing with this CUDA.
    for name in ("include/cuda_runtime_api.h", "lib64/libcudart.so"):
        written(tmp_path / "toolkit" / name)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    site = sites.load("h20-roce")
    environments = [image_environment(site, image)]
    config = write(
        site_configuration(site, ROOT / "site/h20-roce", {"gpu": environments}), tmp_path
    )

    def run(check: str) -> list[str]:
        done = ran(
            *(Path(sys.executable).with_name("reframe"), "--nocolor", "--dry-run"),
            *("-C", config, "-c", CHECKS, "-n", f"^{check}$", "--warn-as-error"),
            *("--prefix", tmp_path),
        )
        scripts = sorted(tmp_path.glob(f"stage/**/{check}*/rfm_job.sh"))
        assert scripts, done.stdout + done.stderr
        return scripts[0].read_text().splitlines()

    return run


def test_ranks_on_two_nodes_are_started_by_srun(script) -> None:
    lines = script("gpu_aware_nodes")
    (launch,) = [line for line in lines if "--ranks=" in line and line.startswith("srun ")]
    assert PROGRAM in launch
    assert launch.startswith("srun --mpi=pmix --kill-on-bad-exit=1 apptainer exec --nv ")
    assert "#SBATCH --ntasks=16" in lines
    assert "#SBATCH --ntasks-per-node=8" in lines
