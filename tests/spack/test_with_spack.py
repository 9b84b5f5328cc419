# SPDX-License-Identifier: MIT
"""With Spack: the host lock is solved again, and gpu-aware-mpi is really built, tested and moved.

Runs where `make spack-setup` has run, where a Spack of the right series is on PATH or in
SPACK_ROOT, or with GIT_MIRROR, a directory with clones of Spack and its recipes.
`make spack-verify` and `make spack-compile` are the same for every lock and package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.said import ran

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _spack() -> None:
    if not (ROOT / ".spack/env.sh").exists() and not (
        os.environ.get("SPACK_ROOT") or os.environ.get("GIT_MIRROR") or shutil.which("spack")
    ):
        pytest.skip("Spack not found: `make spack-setup` gets it")
    done = ran(ROOT / "ci/spack/setup.sh")
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])


def script(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    return ran(ROOT / "ci/spack" / name, *args)


@pytest.mark.timeout(600)
def test_the_host_lock_is_what_its_manifest_concretizes_to() -> None:
    done = script("verify.sh", "host")
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "host: same" in done.stdout


@pytest.mark.timeout(600)
def test_gpu_aware_is_built_tested_signed_and_installed_elsewhere() -> None:
    done = script("compile.sh", "gpu-aware")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test: unsigned packages are refused" in done.stdout
    # Before the push and after the installation elsewhere; a second run finds it pushed already.
    for test in ("linkage", "two_ranks", "corruption"):
        assert done.stdout.count(f"test: GpuAwareMpi::test_{test} PASSED") == 2, done.stdout
