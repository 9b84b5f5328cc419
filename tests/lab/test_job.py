# SPDX-License-Identifier: MIT
"""``busbar job`` of an ordinary user on a job of Slurm: a step on each of its nodes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import cases
from tests.said import ran

from .common import LAB, ROOT

pytestmark = pytest.mark.lab
USER = "games"
"""An account that every Debian has."""
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"
BATCH = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/")
RANK = """
import os, signal, time
odd = os.environ["SLURM_PROCID"] == "2"
while odd and "{fault}" == "loop":
    pass
if odd:
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    time.sleep(0.01)
"""


@pytest.fixture
def lab(installed: None) -> Iterator[Path]:
    """A cluster of two nodes with files that the user may read: those of pytest are closed."""
    directory = Path(tempfile.mkdtemp(prefix="busbar-lab-", dir="/var/tmp"))
    directory.chmod(0o755)
    found = directory / "cluster"
    subprocess.run([LAB / "up", "-n", "2", "-g", "0", found], check=True, capture_output=True)
    yield found
    subprocess.run([LAB / "down", found], check=True)
    shutil.rmtree(directory)


@cases(("fault", "cause"), [("stop", "rank-stopped"), ("loop", "rank-late")])
def test_a_user_sees_which_rank_holds_up(fault: str, cause: str, lab: Path) -> None:
    """By ``srun --overlap``, also on a busy machine, where the loop does not get its CPU."""

    def as_user(*words: str) -> subprocess.CompletedProcess[str]:
        line = [LAB / "run", lab, "runuser", "-u", USER, "--", *words]
        return ran(*line, cwd="/")

    libraries = f"PYTHONPATH={ROOT}:{sysconfig.get_path('platlib')}"
    busbar = ("env", libraries, PYTHON, "-m", "busbar")
    if as_user(*busbar, "--version").returncode:
        pytest.skip(f"{USER} may not read this checkout or its libraries")
    job = as_user(
        *BATCH,
        "-N2",
        "-n4",
        "--ntasks-per-node=2",
        "--wrap",
        f"srun {PYTHON} -c '{RANK.format(fault=fault)}'",
    ).stdout.strip()
    try:
        time.sleep(6)
        done = as_user(*busbar, "job", "--json", job)
    finally:
        as_user("scancel", job)
    found = json.loads(done.stdout)
    assert [(c["id"], c["details"]["ranks"]) for c in found["causes"]] == [(cause, [2])]
    assert done.returncode == 1
    assert found["nodes"] == ["n1", "n2"]
    assert len(found["ranks"]) == 4
    assert found["collector_cpu_s"] < 0.5
