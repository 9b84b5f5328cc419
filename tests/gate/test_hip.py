# SPDX-License-Identifier: MIT
"""The calls of HIP: names, types and numbers as Debian's ROCm has them, which has no GPU here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.said import ran

pytestmark = pytest.mark.run


@pytest.fixture(autouse=True)
def hipcc() -> None:
    if not shutil.which("hipcc"):
        pytest.skip("hipcc is not installed (Debian: apt install hipcc); .ci/run installs it")


def test_each_call_has_the_type_of_the_header_and_is_in_the_library(tmp_path: Path) -> None:
    source = Path(__file__).with_name("hip_calls.cpp")
    flags = ["-O1", "-std=c++17", "-D__HIP_PLATFORM_AMD__", "-x", "c++"]
    program = tmp_path / "calls"
    subprocess.run(["hipcc", *flags, source, "-o", program], check=True)
    subprocess.run([program], check=True)


def test_a_library_without_gpus_is_an_error_of_one_line_or_no_gpu() -> None:
    """In a process of its own, as the gate runs it."""
    code = (
        "from busbar.gate.engine import EngineError, Hip\n"
        "try:\n    print(Hip().bus_ids())\n"
        "except EngineError as error:\n    print(error)\n"
    )
    done = ran(sys.executable, "-c", code, check=True, timeout=120)
    (line,) = done.stdout.splitlines()
    assert line in ("[]", "hipInit: hipErrorInvalidDevice", "hipInit: hipErrorNoDevice")
