# SPDX-License-Identifier: MIT
"""A launch that did not work is one result with its reason, and never a pass."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.engine.collect import show, split
from busbar.engine.judge import judge
from busbar.engine.launch import BenchLaunch
from busbar.engine.results import Result
from busbar.engine.run import Run
from busbar.explain import Source, explain
from busbar.verdict import Verdict

SITE = sites.load("h200x4")
RUN = Run(site=SITE, partition="gpu", lane="ucx-1.14", harness="nccl-tests")
DATA = Path(__file__).parents[1] / "data/h200x4"
MIB = 1 << 20
ALL_REDUCE = BenchLaunch(
    bench="all_reduce",
    command=("/opt/bin/all_reduce_perf", "-b", "1M", "-e", "1G", "-f", "4", "-g", "1"),
    ranks=4,
    sizes=tuple(MIB << 2 * n for n in range(6)),
    gpus=(0, 1, 2, 3),
    transports=("P2P", "NVLS"),
    log="nccl",
    validated=True,
    placed=False,
    end=True,
)
OSU_BW = BenchLaunch(
    bench="osu_bw",
    command=("osu_bw", "-m", "4194304:67108864", "D", "D"),
    ranks=2,
    sizes=tuple(4 * MIB << n for n in range(5)),
    gpus=(0, 1),
    transports=("cuda_ipc",),
    validated=True,
)
MATRIX = BenchLaunch(
    "gpu_aware",
    ("gpu_aware", "--buffers=DD", "--sizes=1M,4M", "--latency-sizes=8"),
    *(4, ()),
    mixed=True,
    end=True,
)


def judged(launch: BenchLaunch, lines: list[str]) -> list[Result]:
    return judge("check", RUN, launch, show("launch 1", lines)).results


def lone_process(number: int) -> list[str]:
    """What a process of nccl-tests without MPI prints: it is rank 0 of one."""
    rows = [
        f"{size:12d}{size // 4:14d}     float     sum      -1     3.52    0.00    0.00"
        "      0     0.21    0.00    0.00      0"
        for size in ALL_REDUCE.sizes
    ]
    return [
        "# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 4(factor) warmup iters: 1"
        " iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
        f"#  Rank  0 Group  0 Pid  {100 + number} on      n1 device  0 [0000:18:00] NVIDIA H200",
        *rows,
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 0",
        "#",
    ]


def in_turn(processes: list[list[str]]) -> list[str]:
    return list(chain(*processes))


def interleaved(processes: list[list[str]]) -> list[str]:
    return [line for lines in zip_longest(*processes) for line in lines if line is not None]


def without_version(processes: list[list[str]]) -> list[str]:
    """As versions before 2.17 print it."""
    return interleaved([lines[2:] for lines in processes])


@pytest.mark.parametrize("order", [in_turn, interleaved, without_version])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_nccl_tests_without_mpi_is_one_result(order, ranks):
    output = order([lone_process(n) for n in range(ranks)])
    lines = [f"$ mpirun -n {ranks} /opt/bin/all_reduce_perf -g 1", *output, "exit_status=0"]
    (result,) = judged(replace(ALL_REDUCE, ranks=ranks, gpus=tuple(range(ranks))), lines)
    assert result.verdict is Verdict.FAILED
    assert f"each of {ranks} processes ran alone: all_reduce_perf is built without MPI" in (
        result.message
    )
    assert "MPI=1 MPI_HOME=..." in result.message
    assert f"-g {ranks}" in result.message
    explained = explain([Source.from_text("job.out", "\n".join(lines) + "\n")])
    assert {cause.id for each in explained for cause in each.causes} == {"singletons"}
    assert "MPI=1" in next(c.remedy for e in explained for c in e.causes if c.id == "singletons")


def test_the_log_of_nccl_shows_that_a_process_is_alone():
    """One process printed its table, the others none."""
    log = (
        "n1:100:100 [0] NCCL INFO comm 0x55 rank 0 nranks 1 cudaDev 0 busId 18000 - Init COMPLETE"
    )
    lines = ["$ mpirun -n 4 all_reduce_perf", *lone_process(0), log, "exit_status=0"]
    (result,) = judged(ALL_REDUCE, lines)
    assert "built without MPI" in result.message


def test_a_healthy_run_is_not_alone():
    lines = (DATA / "nccl_healthy_a.log").read_text().splitlines()
    results = judged(ALL_REDUCE, [*split(lines)[0], "exit_status=0"])
    assert len(results) > 1
    assert not any("alone" in result.message for result in results)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "the output ends before the exit status; no reading at"),
        (["exit_status=127"], "osu_bw: exit status 127; no reading at 4 MiB, 8 MiB"),
        (["exit_status=137"], "osu_bw: exit status 137 (SIGKILL); no reading at"),
        (["exit_status=255"], "osu_bw: exit status 255; no reading at"),
        (["This test requires exactly two processes"] * 2 + ["exit_status=1"], "2 separate"),
    ],
)
def test_a_launch_that_did_not_start_is_one_result(lines, says):
    (result,) = judged(OSU_BW, ["$ mpirun -n 2 osu_bw", *lines])
    assert result.verdict is Verdict.FAILED
    assert says in result.message


def test_a_launch_that_was_killed_keeps_its_readings():
    """They are judged; what is missing is one result."""
    whole = split((DATA / "osu_bw_healthy_a.log").read_text().splitlines())[0]
    rows = [n for n, line in enumerate(whole) if re.match(r"\d+\s", line)]
    cut = [*whole[: rows[-1]], "exit_status=137"]
    launch = replace(OSU_BW, sizes=(4 * MIB, 256 * MIB), validated=False, placed=False)
    results = judged(launch, cut)
    wrong = [result for result in results if result.verdict is Verdict.FAILED]
    assert any(result.value for result in results)
    assert len([result for result in wrong if "SIGKILL" in result.message]) == 1
    assert len([result for result in wrong if "no reading" in result.message]) == 1


def start(ranks: int) -> str:
    return (
        '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "cuda",'
        f' "ranks": {ranks}, "asked_ranks": 4, "mpi": "Open MPI v5.0.11"}}'
    )


ERROR = '{"event": "error", "rank": 0, "text": "asked for 4 ranks, MPI started 1"}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["mpirun was unable to find the executable"], "exit status 1"),
        (["gpu_aware: cannot open libcuda.so.1"], "cannot open libcuda.so.1"),
        ([start(1), ERROR] * 4, "4 separate programs started instead of one"),
        ([start(1), ERROR], "requested 4 ranks, but the launcher started 1"),
    ],
)
def test_a_matrix_that_was_not_measured_is_one_result(lines, says):
    (result,) = judged(MATRIX, [*lines, "exit_status=1"])
    assert result.verdict is Verdict.FAILED
    assert says in result.message


def test_a_matrix_that_breaks_off_says_so_and_counts_what_is_missing():
    results = judged(MATRIX, [start(4), "exit_status=0"])
    assert all(result.verdict is Verdict.FAILED for result in results)
    messages = "; ".join(result.message for result in results)
    assert "the output ends before the tool's last line" in messages
    assert "latency 0->1 D D: no reading at 8 B and 35 more" in messages


def test_an_output_that_no_tool_answers_for_fails():
    """Nothing would compare it with the request."""
    launch = BenchLaunch("unheard_of", ("unheard_of",), 1, (), placed=False)
    (result,) = judged(launch, ["$ unheard_of", "all is well", "exit_status=0"])
    assert result.verdict is Verdict.FAILED
    assert "this benchmark is unknown" in result.message
