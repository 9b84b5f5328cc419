# SPDX-License-Identifier: MIT
"""What the tests share: the checkout, and the program compiled once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SOURCE = ROOT / "reframe_checks" / "src" / "gpu_aware.cpp"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """Recorded outputs of real runs."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``gpu_aware`` for host memory, compiled with every warning on."""
    target = tmp_path_factory.mktemp("build") / "gpu_aware"
    flags = ["-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([BIN / "mpic++", *flags, SOURCE, "-ldl", "-o", target], check=True)
    return target
