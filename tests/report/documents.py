# SPDX-License-Identifier: MIT
"""Documents and histories that the tests of the report show. No number is of a real machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from busbar.check.snapshot import Snapshot, of_document
from busbar.document import parse_document
from busbar.engine.check_document import CheckDocument
from busbar.engine.results import Result
from busbar.history.model import (
    Change,
    Difference,
    Event,
    HistoryBounds,
    HistoryKey,
    NightSeries,
    Ratio,
)
from busbar.verdict import Verdict
from tests.results import verdict_of

DAY = 86400.0
FIRST = 1_790_000_000.0
SIZES = [8 << 2 * n for n in range(14)]
MARKUP = "<script>document.title='forged'</script>\"'><img src=x onerror=alert(1)>\x1b[2J\u202e"


def row(check: str = "xccl", value: float | None = None, **more: Any) -> dict[str, Any]:
    """A row of results.json, in GB/s unless it is a latency, with the band of its verdict."""
    metric = more.setdefault("metric", "bandwidth" if value is not None else "")
    verdict = more.setdefault("verdict", Verdict.PASS)
    more.setdefault("bytes", 1 << 24 if value else None)
    if value and verdict in (Verdict.PASS, Verdict.DEGRADED):
        by = 1 if verdict is Verdict.PASS else 0.1 if metric == "latency" else 10
        low = more.setdefault("low", value / 2 * by)
        more.setdefault("high", max(low, value * 2 * by))
    if verdict is Verdict.FAILED:
        more.setdefault("message", "wrong data")
    result = vars(
        Result(
            check=check,
            us=value if metric == "latency" else None,
            gb_per_s=None if metric == "latency" else value,
            **more,
        )
    )
    return {**result, "verdict": str(result["verdict"]), "partition": "gpu", "environment": "e"}


def document(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "schema": "busbar-check/1",
        "site": "h200x4",
        "time": "2026-11-22T03:12:00+00:00",
        "delivery": "spack",
        "lane": "ucx-1.14",
        "versions": {"mpi": "Open MPI 5.0.11", "ucx": None},
        "results": rows,
        "causes": [],
        "notes": [],
        "skipped": [],
        "coverage": "",
        "interrupted": None,
        "verdict": verdict_of(rows),
        **more,
    }


def snapshot(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> Snapshot:
    """The run as ``busbar report`` reads it, and also with numbers that JSON does not have."""
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document(rows, **more)))
    return of_document(parse_document(CheckDocument, json.loads(path.read_text())))


def cause(check: str, id_: str, **more: Any) -> dict[str, Any]:
    line = {"file": "stage/rfm_job.out", "line": 3, "text": "NVLink 10 of 18 active"}
    return {
        "check": check,
        "id": id_,
        "summary": "GPU 2 has 10 of 18 links",
        "confidence": "certain",
        "remedy": "Reset GPU 2.",
        "evidence": [line],
        **more,
    }


def matrix_rows(slow: int | None = None, where: str = "n1") -> Iterator[dict[str, Any]]:
    """Pairs of four GPUs at two sizes; those of GPU ``slow`` are below their band."""
    for source in range(4):
        for target in range(4):
            if source == target:
                continue
            bad = slow in (source, target)
            for size, typical in ((1 << 20, 100.0), (1 << 28, 375.0)):
                yield row(
                    "link_matrix",
                    typical * (0.6 if bad else 1.01),
                    where=where,
                    pair=f"{source}->{target}",
                    buffers="D D",
                    bytes=size,
                    limit=450.0,
                    low=0.92 * typical,
                    typical=typical,
                    high=1.06 * typical,
                    verdict=Verdict.DEGRADED if bad else Verdict.PASS,
                    message=f"{source}->{target}: below the band" if bad else "",
                )


def curve_rows(check: str = "xccl", where: str = "n1", **more: Any) -> Iterator[dict[str, Any]]:
    """A collective from 8 B to 512 MiB."""
    for size in SIZES:
        typical = 420 * size / (size + 5e6)
        bounds = {"low": 0.9 * typical, "typical": typical, "high": 1.1 * typical, "limit": 480.0}
        yield row(
            check,
            typical,
            **{"where": where, "pair": "all_reduce", "metric": "busbw", "bytes": size, **bounds},
            **more,
        )


def series(check: str = "xccl", nights: int = 30, step: int = 20, node: str = "n1") -> NightSeries:
    """A series that is 18 % lower from night ``step`` on, when another provenance begins."""
    numbers = np.arange(nights)
    noise = 1 + 0.004 * np.sin(numbers * 12.9)
    return NightSeries(
        key=HistoryKey("h200x4", "gpu", node, check, "busbw all_reduce 256 MiB", "GB/s"),
        times=FIRST + DAY * numbers,
        values=400.0 * noise * np.where(numbers >= step, 0.82, 1.0),
        provenance=np.where(numbers >= step, 2, 1),
        days=numbers,
        bounds=HistoryBounds(low=380.0, typical=400.0, high=430.0, limit=480.0),
        readings=nights,
    )


FACTS = {1: {"lock.libfabric": "2.0"}, 2: {"lock.libfabric": "2.2"}}
"""The provenance of the nights before and from the step."""


def event(*of: NightSeries, step: int = 20) -> Event:
    """The step of these series."""
    return Event(
        since=float(of[0].times[step]),
        changes=tuple(
            Change(
                key=each.key,
                since=float(each.times[step]),
                last_before=float(each.times[step - 1]),
                found=float(each.times[step + 3]),
                before=400.0,
                after=328.0,
                ratio=Ratio(0.82, 0.81, 0.83),
                score=2.0,
                worse=True,
                bounds=each.bounds,
            )
            for each in of
        ),
        shared=("node n1",),
        differences=(
            Difference("lock.libfabric", "2.0", "2.2", 0.9, "it carries the data"),
            Difference("driver", "570.86", "570.86", 0.0),
        ),
    )
