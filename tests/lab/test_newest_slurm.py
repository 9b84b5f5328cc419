# SPDX-License-Identifier: MIT
"""The Slurm of Debian unstable, which has no PMIx: ``mpirun`` starts the ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.said import ran

from .common import LAB, ROOT
from .test_center_slurm import ALONE, BETWEEN, command, document, on, site
from .test_checks_slurm import messages

pytestmark = [pytest.mark.lab, pytest.mark.long]


@pytest.fixture(scope="module")
def newest(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cluster of it; n4 is drained."""
    directory = tmp_path_factory.mktemp("newest") / "cluster"
    ran(LAB / "up", "-u", directory, check=True)
    on(directory, "scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=bad fan")
    yield directory
    subprocess.run([LAB / "down", directory], check=True)


def test_every_node_and_an_allocation(newest: Path, tmp_path: Path) -> None:
    release = on(newest, "srun", "--version").stdout.split()[1]
    assert tuple(map(int, release.split(".")[:2])) >= (24, 11)
    one = site(tmp_path, "mpirun", partitions=("lab",))
    every = document(on(newest, *command(one, tmp_path / "out", *ALONE, "--nodelist", "all")))
    assert every["coverage"] == "3 of 4 nodes tested, 1 cannot be: n4 drained (bad fan)"
    assert {row["where"] for row in every["results"]} == {"n1", "n2", "n3"}, messages(every)
    words = command(one, tmp_path / "inside", *BETWEEN)
    inside = document(on(newest, "salloc", "-N2", "--exclusive", *words))
    assert {row["where"] for row in inside["results"]} == {"n1,n2", "n2,n1"}, messages(inside)
    assert all(row["gb_per_s"] > 0 for row in (*every["results"], *inside["results"]))


@pytest.mark.parametrize(
    ("sbatch", "words"),
    [
        ("--partition=labb", "invalid partition specified: labb"),
        ("--nodelist=n4", "the job could not start: ReqNodeNotAvail, n4 drained (bad fan)"),
    ],
)
def test_its_words_are_understood(newest: Path, tmp_path: Path, sbatch: str, words: str) -> None:
    one = site(tmp_path, "mpirun", partitions=("lab",))
    done = on(newest, *command(one, tmp_path / "out", *ALONE, "--sbatch", sbatch))
    assert (done.returncode, document(done)["verdict"]) == (2, "not run"), done.stdout
    assert words in messages(document(done))


def test_scrontab_takes_the_lines_of_ours(newest: Path, tmp_path: Path) -> None:
    with (newest / "slurm.conf").open("a") as conf:
        conf.write("ScronParameters=enable\n")
    on(newest, "scontrol", "reconfigure")
    lines = (ROOT / "ci/slurm/scrontab").read_text()
    file = tmp_path / "scrontab"
    file.write_text(lines.replace("--partition=gpu --nodes=130", "--partition=lab --nodes=2"))
    scrontab = ROOT / "build/slurm/bin/scrontab"
    done = on(newest, scrontab, file)
    assert done.returncode == 0, done.stderr
    jobs = on(newest, "squeue", "--noheader", "--format=%j %T %D").stdout.splitlines()
    assert {"busbar-gate-idle PENDING 1", "busbar-night PENDING 2"} <= {*jobs}
    on(newest, scrontab, "-r")
