# SPDX-License-Identifier: MIT
"""The pair program over host memory: rates, wrong data, a partner that hangs, wrong orders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from busbar.data import CHECKS
from tests.said import ran

pytestmark = pytest.mark.run
BIN = Path(sys.executable).parent
FAST = ("--bytes=64K", "--seconds=0.02")
MPI = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled with every warning on."""
    target = tmp_path_factory.mktemp("build") / "sweep"
    flags = ["-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pthread"]
    source = CHECKS / "src" / "sweep.cpp"
    subprocess.run([BIN / "mpic++", *flags, source, "-o", target], check=True)
    return target


def run(
    pairs: Path, orders: str, *options: str, ranks: int = 2, hang: int = -1, per_node: int = 1
) -> tuple[int, list[dict[str, Any]]]:
    """Return exit status and events; rank ``hang`` never gets an order.

    The ranks write into files of their own. The mpirun of Open MPI 5.0.11 can lock itself up, in
    its PMIx server, when a rank has ended without MPI_Finalize: then all ranks must be gone.
    """
    file = pairs.with_name("orders")
    file.write_text(orders)
    results = [pairs.with_name(f"result-{rank}") for rank in range(ranks)]
    for each in results:
        each.write_text("")
    words = f"{pairs} --ranks={ranks} --per-node={per_node} {' '.join((*FAST, *options))}"
    # As if the ranks were on nodes of their own. A rank without orders gives up by itself.
    rank = "$OMPI_COMM_WORLD_RANK"
    local = (
        f"exec >{pairs.with_name('result')}-{rank}; export SLURM_LOCALID=$(({rank} % {per_node}))"
    )
    orders_of = f"if [ {rank} = {hang} ]; then sleep 18 | {words}; else {words} <{file}; fi"
    script = f"{local}; {orders_of}"
    job = subprocess.Popen(
        [BIN / "mpirun", "-n", str(ranks), "sh", "-c", script], env=os.environ | MPI
    )
    try:
        status = job.wait(timeout=120)
    except subprocess.TimeoutExpired:
        left = subprocess.run(["pgrep", "-f", f"^{pairs} "], check=False, capture_output=True)
        assert not left.stdout, "a rank does not end"
        status = -1
    finally:
        job.kill()
        job.wait()
    lines = [line for each in results for line in each.read_text().splitlines()]
    return status, [json.loads(line) for line in lines if line.startswith("{")]


def test_both_ends_report_what_arrived(pairs: Path) -> None:
    status, events = run(pairs, "pairs 0:1\npass 7 -1 20\npass 8 0 20\npass 9 1 20\nquit\n")
    assert status == 0
    found = [each for each in events if each["event"] == "pair"]
    assert {(each["pass"], each["rank"]) for each in found} == {(7, 0), (7, 1), (8, 0), (8, 1)}
    assert all(each["gb_per_s"] > 0 and not each["wrong"] for each in found), found
    assert all(each["messages"] >= 4 and not each["lost"] for each in found), found


def test_hip_back_end_compiles(tmp_path: Path) -> None:
    if not shutil.which("hipcc"):
        pytest.skip("hipcc is not installed (Debian: apt install hipcc); .ci/run installs it")
    flags = ["-O1", "-std=c++17", "-DGPU_HIP", "-D__HIP_PLATFORM_AMD__", "-x", "c++"]
    include = ran(BIN / "mpic++", "--showme:compile", check=True).stdout.split()
    source = CHECKS / "src" / "sweep.cpp"
    command = ["hipcc", *flags, *include, "-c", source, "-o", tmp_path / "sweep.o"]
    subprocess.run(command, check=True)


def test_wrong_data_is_counted_where_it_arrived(pairs: Path) -> None:
    _, events = run(pairs, "pairs 0:1\npass 1 -1 20\nquit\n", "--corrupt=1")
    wrong = {each["rank"]: each["wrong"] for each in events if each["event"] == "pair"}
    assert wrong[0] > 0
    assert wrong[1] == 0


def test_a_partner_that_hangs_costs_its_pair_the_deadline(pairs: Path) -> None:
    """The pair of the same pass that is well, and later passes, are measured."""
    orders = "pairs 0:1 2:3\npass 1 -1 8\npairs 0:2\npass 2 -1 10\nquit\n"
    _, events = run(pairs, orders, ranks=4, hang=1)
    lost = {(e["pass"], e["rank"]): e["lost"] for e in events if e["event"] == "pair"}
    assert lost.pop((1, 0)) == "no answer before the deadline"
    assert lost == {(1, 2): "", (1, 3): "", (2, 0): "", (2, 2): ""}


@pytest.mark.parametrize(
    ("orders", "options", "code"),
    [
        ("measure 1\n", (), "usage"),
        ("pairs 0:9\n", (), "usage"),
        ("quit\n", ("--window=0",), "usage"),
        ("quit\n", ("--ranks=4",), "rank-count"),
    ],
)
def test_wrong_use_is_an_error_event(
    pairs: Path, orders: str, options: tuple[str, ...], code: str
) -> None:
    status, events = run(pairs, orders, *options)
    assert status
    assert code in {each.get("code") for each in events}
