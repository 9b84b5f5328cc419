# SPDX-License-Identifier: MIT
"""A run that is interrupted cancels its Slurm jobs, also queued ones, and nobody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from busbar.slurm.client import cancel_jobs
from tests.files import executable

# Two programs stand in for a controller: a job is a file with its directory; some need SIGKILL.
SQUEUE = """\
cd "$JOBS"
for job in *; do [ ! -e "$job" ] || echo "$job|$(cat "$job")"; done
"""
SCANCEL = """\
echo "$*" >>"$JOBS.calls"
for word; do
    case $word in
    -*) kill=yes ;;
    9*) [ -z "$kill" ] || rm "$JOBS/$word" ;;
    *) rm "$JOBS/$word" ;;
    esac
done
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch) -> Path:
    for name, text in {"squeue": SQUEUE, "scancel": SCANCEL}.items():
        executable(tmp_path / name, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    directory = tmp_path / "jobs"
    directory.mkdir()
    monkeypatch.setenv("JOBS", str(directory))
    return directory


def test_only_the_jobs_of_the_run_are_cancelled(jobs: Path) -> None:
    (jobs / "11").write_text("/scratch/out/reframe/stage/a")
    (jobs / "12").write_text("/scratch/out/reframe/stage/b|c")
    (jobs / "13").write_text("/scratch/output-of-others")
    (jobs / "91").write_text("/scratch/out/reframe/stage/stubborn")
    cancel_jobs(Path("/scratch/out"))
    assert [path.name for path in jobs.iterdir()] == ["13"]
    first, second = jobs.with_name("jobs.calls").read_text().splitlines()
    assert first == "11 12 91"
    assert second == "--full --signal=KILL 91"


def test_without_jobs_nothing_is_called(jobs: Path) -> None:
    cancel_jobs(Path("/scratch/out"))
    assert not jobs.with_name("jobs.calls").exists()


def test_a_controller_that_does_not_answer_is_no_error(jobs: Path) -> None:
    (jobs.parent / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error' >&2\nexit 1\n")
    cancel_jobs(Path("/scratch/out"))
