# SPDX-License-Identifier: MIT
"""The program behind the check ``memory``: each back end compiles, and copies are measured."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from busbar.parse.events import ReadingEvent, parse
from tests.cases import some
from tests.said import ran

pytestmark = pytest.mark.run

SOURCE = Path(__file__).resolve().parents[2] / "reframe_checks" / "src" / "memory.cpp"
FLAGS = ("-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    target = tmp_path_factory.mktemp("memory") / "memory"
    subprocess.run(["c++", *FLAGS, SOURCE, "-o", target], check=True)
    return target


def run(program, *arguments):
    done = ran(program, *arguments)
    return done.returncode, [parse(line) for line in done.stdout.splitlines()]


def test_copies_are_measured_and_checked(program):
    status, events = run(program, "0", "8M")
    assert status == 0
    readings = {e.operation: e for e in events if isinstance(e, ReadingEvent)}
    assert set(readings) == {"one_core", "all_cores"}
    for reading in readings.values():
        assert reading.wrong == 0
        assert reading.value > 0
    assert events[-1].wrong == 0
    assert events[-1].clock_ratio == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "status", "code", "says"),
    [
        (("2", "8M"), 4, "too-few-gpus", "asked for 2 GPUs, 0 are visible"),
        (("0", "8Q"), 2, "usage", "'8Q' is not a size"),
        ((), 2, "usage", "usage: memory"),
    ],
)
def test_what_it_refuses(program, arguments, status, code, says):
    got, events = run(program, *arguments)
    assert got == status
    assert events[-1].code == code
    assert says in events[-1].text


@pytest.mark.parametrize("fault", some(["flip", "past", "ahead", "drop", "half", "shift"], 3))
def test_a_wrong_copy_is_seen(program, root, tmp_path, fault):
    library = tmp_path / "faulty_copy.so"
    source = root / "tests" / "wire" / "faulty_copy.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", source, "-o", library, "-ldl"], check=True)
    for every in (2, 5, 9, 97):
        faults = (f"FAULT={fault}", f"FAULT_EVERY={every}")
        status, events = run("env", f"LD_PRELOAD={library}", *faults, program, "0", "8M")
        assert status == 1, every
        assert events[-1].wrong > 0, every


def test_hip_back_end_compiles(tmp_path):
    if not shutil.which("hipcc"):
        pytest.skip("hipcc is not installed (Debian: apt install hipcc); .ci/run installs it")
    flags = ["-O1", "-std=c++17", "-DGPU_HIP", "-D__HIP_PLATFORM_AMD__", "-x", "c++"]
    subprocess.run(["hipcc", *flags, "-c", SOURCE, "-o", tmp_path / "memory.o"], check=True)
