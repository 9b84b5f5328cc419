# SPDX-License-Identifier: MIT
"""What users post: one rank's log, a message without a table, output of NCCL's own monitors."""

from __future__ import annotations

import json

import pytest

from busbar.errors import BusbarError
from busbar.explain import Explanation, Source, explain
from busbar.verdict import Verdict

from .outputs import BANNER, ids, nccl_table, run

SLOW = nccl_table({1 << 28: 120.0, 1 << 30: 130.0})


def info(text: str, rank: int = 0, host: str = "node0") -> str:
    return f"{host}:{1000 + rank}:{1100 + rank} [{rank}] NCCL INFO {text}\n"


# ---- what is not judged


def test_a_setting_is_not_called_harmless_in_a_run_that_is_not_judged() -> None:
    found = run(info("Could not enable P2P between dev 1(=1b000) and dev 0(=1a000)"))
    assert (found.verdict, found.causes) == (Verdict.UNJUDGED, ())
    assert [note.id for note in found.notes] == ["setting-not-judged"]


# ---- staging counts where it costs
def across(gpu: str, rate: float, *more: str) -> Explanation:
    log = info("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'")
    log += "".join(info(text) for text in more)
    log += info("Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0")
    table = nccl_table({1 << 28: rate, 1 << 30: rate}, ranks=4, nodes=2, gpu=gpu)
    return run(log + table)


def test_staging_at_line_rate_is_healthy() -> None:
    assert not ids(across("Tesla T4", 2.9))
    assert not ids(across("NVIDIA A100-SXM4-80GB", 11.5, "   + NET[12.5] - NET/0 (0/0/12.5)"))


def test_staging_below_line_rate_is_a_fault() -> None:
    slow = across("NVIDIA A100-SXM4-80GB", 11.5, "   + NET[50.0] - NET/0 (0/0/50.0)")
    assert "gdr-off" in ids(slow)


# ---- a message and a run that goes on
def test_what_a_run_survives_is_no_fault() -> None:
    """https://github.com/openucx/ucx/issues/8746."""
    message = "UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate memory. Please set max"
    message += " locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n"
    line = f"[1.0] [n1:5:0] ib_log.c:246 {message}"
    assert run(line + BANNER + "4194304 285000\n").verdict is Verdict.UNJUDGED
    assert ids(run(line)) == {"memlock-limit"}
    died = run(line + BANNER + "4194304 285000\nexit_status=1\n")
    assert "memlock-limit" in ids(died)


# ---- Xid


# ---- symptoms cite what explains
def test_a_death_cites_the_nearest_complaint() -> None:
    text = "starting\nmylib: cannot open the licence file /opt/x\nnothing here\n"
    text += (
        "mpirun noticed that process rank 2 with PID 1 on node n1 exited on signal 9 (Killed).\n"
    )
    found = run(text)
    assert ids(found) == {"rank-died"}
    assert found.causes[0].confidence == "likely"
    assert "licence" in found.causes[0].evidence[-1].text


def test_truncated_output_cites_the_nearest_complaint() -> None:
    text = "$ mpirun -np 2 osu_bw -m 4194304:4194304 D D\n" + BANNER + "mylib: fatal: no quota\n"
    found = run(text)
    assert ids(found) == {"truncated-output"}
    assert "no quota" in found.causes[0].evidence[-1].text


# ---- impossible figures


def test_a_bus_bandwidth_of_nothing() -> None:
    row = "1073741824 268435456 float sum -1 800.0 1342.18 0.00 0 800.0 1342.18 0.00 0\n"
    alone = run(row)
    assert (ids(alone), alone.verdict) == (set(), Verdict.UNJUDGED)
    assert "one-rank" in {note.id for note in alone.notes}
    other = "536870912 134217728 float sum -1 2700.0 198.84 347.97 0 2700.0 198.84 347.97 0\n"
    assert ids(run(other + row)) == {"invalid-reading"}


# ---- two runs, or two programs
def test_two_runs_in_one_file_are_two_runs() -> None:
    sources = [Source.from_text("job.out", SLOW + SLOW.replace("130.00", "131.00"))]
    assert len(explain(sources)) == 2


# ---- command lines in a log


# ---- PyTorch's watchdog


# ---- NCCL's monitors
def ras(**rank: object) -> str:
    def one(number: int, count: int) -> dict[str, object]:
        counts = {"AllReduce": count}
        status = {"async_error": 0}
        place = {"rank": number, "host": f"n{number}", "pid": 7, "status": status}
        return {**place, "collective_counts": counts}

    community = {"hash": "0x1", "size": 2, "ranks": [one(0, 9), one(1, 9)], "missing_ranks": []}
    community.update(rank)
    return json.dumps({"nccl_version": "2.31.2", "communicators": [community]}, indent=2)


def test_ras_of_a_healthy_job() -> None:
    found = run(ras())
    assert (found.tool, found.version, found.ranks) == ("ncclras", "2.31.2", 2)
    assert (found.verdict, ids(found)) == (Verdict.UNJUDGED, set())


def test_ras_names_a_rank_that_is_gone() -> None:
    gone = {"rank": 1, "host": "n1", "pid": 7, "status": {"considered_dead": True}}
    found = run(ras(missing_ranks=[gone]))
    assert ids(found) == {"rank-died"}
    assert found.causes[0].evidence[0].line > 1


def test_ras_counts_collectives() -> None:
    found = run(ras().replace('"AllReduce": 9', '"AllReduce": 8', 1))
    assert ids(found) == {"collective-mismatch"}
    assert "rank 0 started 8 of 9 AllReduce" in found.causes[0].summary


def test_records_of_the_inspector_are_those_of_a_job() -> None:
    """They are times of single operations, with the wait for other ranks."""
    with pytest.raises(BusbarError, match="Inspector") as raised:
        run('{"header":{"id":"0x7","rank":0,"n_ranks":8},"coll_perf":{"coll":"AllReduce"}}\n')
    assert "busbar job --inspector" in raised.value.hint
