# SPDX-License-Identifier: MIT
"""A day of records of NCCL's Inspector, with faults in it or none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from busbar.cli import main
from busbar.job.inspector import judge_inspector
from busbar.job.judge import JobAnswer
from busbar.verdict import Verdict
from tests.cases import cases, some

DAY_S, STEP_S, RANKS, HOUR_S = 86_400, 20, 8, 3600
START_S = 1_789_948_800  # midnight, UTC
SIZES = (("AllReduce", 1 << 28, 1200.0), ("AllGather", 1 << 20, 40.0))


@cache
def lines(seed: int, fault: Callable[[float, int], tuple[float, float]]) -> list[list[str]]:
    """The files of the ranks; ``fault`` gives factors of the transfer, and of a rank's delay."""
    draw = random.Random(seed)  # noqa: S311 - the same day each time
    files: list[list[str]] = [[] for _ in range(RANKS)]
    for number, at in enumerate(range(0, DAY_S, STEP_S)):
        for name, size, usual_us in SIZES:
            transfer = usual_us * fault(at, -1)[0] * draw.lognormvariate(0, 0.04)
            arrives = [
                draw.expovariate(1 / (0.04 * usual_us)) + fault(at, rank)[1] * usual_us
                for rank in range(RANKS)
            ]
            for rank, mine in enumerate(arrives):
                head = {"id": "0x7", "rank": rank, "n_ranks": RANKS, "nnodes": 2}
                stamp = (START_S + at) * 10**6
                place = {"hostname": f"n{rank // 4}", "pid": rank, "dump_timestamp_us": stamp}
                perf = {"coll": name, "coll_sn": number, "coll_msg_size_bytes": size}
                perf["coll_exec_time_us"] = transfer + max(arrives) - mine
                files[rank].append(
                    json.dumps({"header": head, "metadata": place, "coll_perf": perf})
                )
    return files


def healthy(at: float, rank: int) -> tuple[float, float]:
    return 1.0, 0.0


def three_faults(at: float, rank: int) -> tuple[float, float]:
    """Rank 5 is late from 10:00, links are slow from 14:00 for an hour, and from 20:00 on."""
    hour = at / HOUR_S
    late = 0.6 if rank == 5 and 10 <= hour < 10.5 else 0.0
    return (1.6 if 14 <= hour < 15 else 1.4 if hour >= 20 else 1.0), late


def judged(seed: int, fault: Callable[[float, int], tuple[float, float]]) -> JobAnswer:
    return judge_inspector("day", lines(seed, fault))


def test_a_day_with_three_faults() -> None:
    found = judged(1, three_faults)
    spans = {
        (
            each.id,
            (each.details["start"] - START_S) / HOUR_S,
            (each.details["end"] - START_S) / HOUR_S,
        )
        for each in found.causes
    }
    slow = "below-band-unexplained"
    assert spans == {("rank-late", 10.0, 10.5), (slow, 14.0, 15.0), (slow, 20.0, 24.0)}
    late = next(each for each in found.causes if each.id == "rank-late")
    assert late.details["ranks"] == [5]
    assert "on n1" in late.summary


@cases("seed", some(range(3), 3))
def test_a_healthy_day(seed: int) -> None:
    found = judged(seed, healthy)
    assert (found.causes, found.verdict) == ((), Verdict.PASS)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["job"]
    for rank, rows in enumerate(lines(1, three_faults)):
        (tmp_path / f"{rank}.log").write_text("\n".join(rows[-2000:]) + "\n{broken\n[]\n")
        words += ["--inspector", str(tmp_path / f"{rank}.log")]
    assert main([*words, "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["nodes"] == ["n0", "n1"]
    assert main(["job", "--inspector", str(tmp_path / "none")]) == 2
