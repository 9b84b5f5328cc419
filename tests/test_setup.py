# SPDX-License-Identifier: MIT
"""``make setup`` on a machine that lacks something: one line that says what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.files import executable
from tests.said import ran


@pytest.fixture
def clone(root: Path, tmp_path: Path) -> Path:
    """What setup reads, without the environment that it makes."""
    for name in (
        "ci/setup.sh",
        "requirements.lock",
        "locks/dev.txt",
        "pyproject.toml",
        "Makefile",
    ):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(root / name, target)
    return tmp_path


def setup(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return ran("make", "--silent", "setup", cwd=clone, env={**os.environ, **environment})


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that setup itself wrote."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_missing_compiler(clone):
    assert "no C++ compiler (no-such-c++) found; install one" in sentence(
        setup(clone, CXX="no-such-c++")
    )


def test_missing_python(clone):
    assert "no no-such-python found; install Python 3.11" in sentence(
        setup(clone, PYTHON="no-such-python")
    )


def test_old_python(clone):
    old = executable(
        clone / "python-old", 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac'
    )
    assert "Python 3.9.2 is too old" in sentence(setup(clone, PYTHON=str(old)))


def test_python_without_venv(clone):
    bare = executable(clone / "python-bare", 'case "$2" in *ensurepip*) exit 1;; esac')
    assert "install its venv module" in sentence(setup(clone, PYTHON=str(bare)))


@pytest.mark.run
def test_unreachable_index(clone):
    done = setup(
        clone,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_NO_CACHE_DIR="1",
        PIP_RETRIES="0",
        PIP_FIND_LINKS="",
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("setup: ")]
    assert done.returncode != 0
    assert "is a Python package index reachable? Set PIP_INDEX_URL" in lines[-1]
    assert "ERROR: " in lines[-1]


def test_unknown_lane(clone):
    assert "unknown LANE=ucx-9" in sentence(setup(clone, LANE="ucx-9"))


def test_every_requirement_is_pinned_with_a_hash(root):
    locks = {*root.glob("locks/*.txt")} - {root / "locks/licenses.txt"}
    for lock in (root / "requirements.lock", *locks):
        blocks = lock.read_text().replace("\\\n", "").splitlines()
        requirements = [block for block in blocks if block and not block.startswith("#")]
        assert requirements
        for requirement in requirements:
            assert "==" in requirement, requirement
            assert "--hash=sha256:" in requirement, requirement
