# SPDX-License-Identifier: MIT
"""No wrong result of a collective passes through PyTorch: `faulty_torch.py` spoils every n-th."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from busbar.data import CHECKS
from busbar.delivery.programs import python_with_torch
from busbar.engine.collect import show
from busbar.engine.judge import judge
from busbar.engine.launch import NONCE, BenchLaunch
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.units import parse_bytes
from busbar.verdict import Verdict
from tests.cases import sampled

pytestmark = pytest.mark.run

HERE = Path(__file__).parent
MOST = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast")


def judged(collectives: str, **faults: str) -> tuple[list[str], list[Reading]]:
    """Run two ranks and judge their output: (what failed, the reading of each collective)."""
    python = python_with_torch()
    if not python:
        pytest.skip("no PyTorch is here (BUSBAR_TORCH_PYTHON names a Python that has it)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        place["MASTER_PORT"] = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [
                *(python, HERE / "faulty_torch.py", CHECKS / "src" / "torch_collectives.py"),
                *("--ranks", "2", "--backend", "gloo", "--sizes", "64K", "--warmup", "1"),
                *("--iterations", "4", "--collectives", collectives),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **place, "RANK": str(rank), NONCE: "0123", **faults},
        )
        for rank in range(2)
    ]
    output = "".join(rank.communicate(timeout=300)[0] for rank in ranks)
    status = max(rank.returncode for rank in ranks)
    launch = BenchLaunch(
        *("torch_collectives", (), 2, (parse_bytes("64K"),)),
        placed=False,
        validated=True,
        end=True,
        nonce="0123",
        operations=tuple((name, None, None) for name in collectives.split(",")),
    )
    shown = show("output", [*output.splitlines(), f"exit_status={status}"])
    results = judge("framework", Run(), launch, shown).results
    assert shown.readings, output
    failed = [result.message for result in results if result.verdict is Verdict.FAILED]
    return failed, list(shown.readings)


def test_nothing_fails_without_a_fault():
    failed, readings = judged(f"{','.join(MOST)},sendrecv")
    assert failed == []
    assert {reading.wrong for reading in readings} == {0}


@sampled(
    2,
    ("fault", "collectives"),
    [
        *((fault, MOST) for fault in ("flip", "half", "drop", "repeat", "blocks", "lost")),
        *((fault, MOST) for fault in ("shift", "past", "ahead")),
        ("source", ("all_gather", "reduce_scatter", "alltoall")),
        ("root", ("broadcast",)),
        ("op", ("all_reduce",)),
        ("type", ("all_reduce",)),
    ],
)
def test_a_wrong_result_never_passes(fault, collectives):
    # The program compares at least eight turns in a row, on the slowest machine; of some also what
    # was sent.
    every = "1" if fault == "source" else "8"
    failed, readings = judged(",".join(collectives), FAULT=fault, FAULT_EVERY=every)
    assert any("wrong at 64 KiB" in message for message in failed), failed
    assert {reading.operation for reading in readings} == set(collectives)
    assert all(reading.wrong for reading in readings), readings


def test_results_of_an_earlier_run_never_pass(tmp_path):
    file = str(tmp_path / "results")
    assert judged("all_gather", FAULT="record", FAULT_FILE=file)[0] == []
    failed, _ = judged("all_gather", FAULT="replay", FAULT_FILE=file)
    assert any("wrong at 64 KiB" in message for message in failed), failed


def test_a_clock_that_is_not_the_kernels_never_passes(root, tmp_path):
    library = tmp_path / "faulty_nccl.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        ["cc", *flags, root / "tests/wire/faulty_nccl.c", "-o", library, "-ldl"], check=True
    )
    failed, _ = judged("all_reduce", FAULT="clock", LD_PRELOAD=str(library))
    assert any("clock of the readings" in message for message in failed), failed
