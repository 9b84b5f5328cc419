# SPDX-License-Identifier: MIT
"""No wrong result of a collective passes through PyTorch: `faulty_torch.py` spoils every n-th."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from busbar.data import CHECKS
from busbar.delivery.programs import python_with_torch
from busbar.judge.bench import judge
from busbar.judge.launch import BenchLaunch, show
from busbar.judge.nonce import NONCE
from busbar.judge.run import Run
from busbar.units import parse_bytes
from busbar.verdict import Verdict

pytestmark = [pytest.mark.run, pytest.mark.xdist_group("torch")]

HERE = Path(__file__).parent
MOST = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast")


def messages_of(collectives: str, **faults: str) -> list[str]:
    """Run two ranks and judge their output; return what failed."""
    python = python_with_torch()
    if not python:
        pytest.skip("no PyTorch is here (BUSBAR_TORCH_PYTHON names a Python that has it)")
    done = subprocess.run(
        [
            *(python, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"),
            *(HERE / "faulty_torch.py", CHECKS / "src" / "torch_collectives.py"),
            *("--ranks", "2", "--backend", "gloo", "--sizes", "64K", "--warmup", "1"),
            *("--iterations", "4", "--collectives", collectives),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PET_TEE": "1", "PET_REDIRECTS": "1", NONCE: "0123", **faults},
    )
    # torchrun may put the rank before what it prints.
    lines = re.sub(r"(?m)^\[default\d\]:", "", done.stdout).splitlines()
    launch = BenchLaunch(
        *("torch_collectives", (), 2, (parse_bytes("64K"),)),
        placed=False,
        validated=True,
        end=True,
        nonce="0123",
    )
    shown = show("output", [*lines, f"exit_status={done.returncode}"])
    results = judge("framework", Run(), launch, shown)
    assert shown.readings, done.stderr
    return [result.message for result in results if result.verdict is Verdict.FAILED]


def test_nothing_fails_without_a_fault():
    assert messages_of(f"{','.join(MOST)},sendrecv") == []


@pytest.mark.parametrize("fault", ["flip", "half", "repeat"])
@pytest.mark.parametrize("collective", MOST)
def test_a_wrong_result_never_passes(collective, fault):
    failed = messages_of(collective, FAULT=fault)
    assert any("wrong at 64 KiB" in message for message in failed), failed
