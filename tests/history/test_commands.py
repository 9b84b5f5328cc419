# SPDX-License-Identifier: MIT
"""Comparison, baseline and what the commands print."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from busbar.history.model import HistoryBounds
from busbar.history.record import HistoryRecord, Measured
from busbar.history.store import open_store
from busbar.site.calibration import SeriesKey
from tests.cases import cases
from tests.said import Command

ALL_REDUCE = {"check": "xccl", "bench": "all_reduce", "harness": "nccl-tests", "kind": "busbw"}
WHERE = {"partition": "gpu", "lane": "ucx-1.14", "nodes": 1, "ranks": 4}
SERIES = SeriesKey(**ALL_REDUCE, **WHERE, bytes=1 << 24)


BOUNDS = HistoryBounds(90, 100, 110, 200)


def fill(directory: Path, factor: float = 1.0, nights: int = 40) -> None:
    """Store nights of two deliveries with another driver; spack is faster by ``factor``."""
    rng = np.random.default_rng(0)
    with open_store(directory, to_write=True) as opened:
        for number, (delivery, driver) in enumerate((("wheels", "570"), ("spack", "580"))):
            records = []
            for night in range(nights):
                value = 100 * (1 + 0.01 * rng.normal()) * (factor if number else 1)
                what = {"node": "n1", "metric": "busbw 16 MiB", "unit": "GB/s"}
                row = Measured(**what, value=value, series=SERIES, **vars(BOUNDS))
                stack = {
                    "lane": "ucx-1.14",
                    "delivery": delivery,
                    "provenance": {"driver": driver},
                }
                place = {"site": "alpha", "partition": "gpu", "time": 1.7e9 + night * 86400}
                records.append(HistoryRecord(check="xccl", rows=(row,), **stack, **place))
            opened.add(f"session 5a48{number}", "host", records)


@cases(
    ("a", "b"),
    [
        ("delivery=wheels", "delivery=spack"),
        ("driver=570", "delivery=spack"),
        ("5a480", "session 5a481"),
    ],
)
def test_compare(a: str, b: str, store: Path, busbar: Command) -> None:
    if not store.exists():
        fill(store, 1.02)
    (row,) = busbar("history compare --json", a, b).json["series"]
    assert row["ratio_low"] < 1.02 < row["ratio_high"]
    assert row["differs"]
    assert row["readings_a"] == row["readings_b"] == 40


@cases(
    ("words", "readings"),
    [(["session 5a481"], [40]), (["SESSION 5A480", "busbw"], [40]), (["host"], [40, 40])],
)
def test_show_a_session(
    words: list[str], readings: list[int], store: Path, busbar: Command
) -> None:
    if not store.exists():
        fill(store)
    shown = busbar("history show --json", *words).json["series"]
    assert [row["readings"] for row in shown] == readings
    busbar.refuses("'session 2'", "history show", "session 2")


def test_compare_says_what_is_worse(store: Path, busbar: Command) -> None:
    fill(store, 0.98)
    assert "1 series worse" in busbar("history compare delivery=wheels delivery=spack").out
    assert "1 series better" in busbar("history compare delivery=spack delivery=wheels").out


def test_compare_days_and_minutes(store: Path, busbar: Command) -> None:
    fill(store)
    listed = busbar("history list --json").json["sources"][0]["first"]
    for text in (listed[:16], listed[:10]):
        (row,) = busbar("history compare --json", text, text).json["series"]
        assert row["ratio"] == 1
    said = busbar("history compare", listed[:10], listed[:10])
    assert said.out.startswith("unjudged: fewer than 4 readings of each; 1 series alike")
    busbar.refuses(listed[:10][:4], "history compare yesterday today")


def test_what_is_the_same_does_not_differ(store: Path, busbar: Command) -> None:
    fill(store)
    said = busbar("history compare --json 2023-01-01..2023-12-01 2023-12-01..")
    assert said.json["series"]
    assert not any(row["differs"] for row in said.json["series"])


def test_a_selection_without_readings(store: Path, busbar: Command) -> None:
    fill(store)
    wrong = {"drivr=580": "driver", "driver=9": "list", "session 7": "list", "x..y": "ISO 8601"}
    for b, hint in wrong.items():
        busbar.refuses(hint, "history compare driver=570", b)


def test_a_site_with_a_slash_whose_readings_make_no_band(
    tmp_path: Path, busbar: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where no run of busbar check has left results
    file = tmp_path / "a.jsonl"
    rows = [
        {"time": f"2026-01-{1 + n // 2:02}", "site": "up/down", "metric": f"m{n % 2}", "value": n}
        for n in range(9, 29)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert busbar("history import", file).status == 0
    said = busbar("report --site up/down --mail")
    assert said.status == 0
    assert "up/down: unjudged: nothing became worse in 2 series\n" in said.out
    busbar.refuses("", "history list --site down")


@cases("line", ["list", "show", "changes", "show nothing"])
def test_an_empty_history(line: str, busbar: Command) -> None:
    for each in (line, f"{line} --json"):
        said = busbar(f"history {each}")
        assert said.status == 0
    assert said.out


def test_text_of_others_cannot_control_the_terminal(tmp_path: Path, busbar: Command) -> None:
    file = tmp_path / "a.jsonl"
    row = {"time": 1.7e9, "site": "a\x1b[2J", "metric": "m\n\x07", "value": 1, "node": "<b>"}
    file.write_text(json.dumps(row))
    assert busbar("history import", file).status == 0
    for line in ("list", "show", "show --json"):
        said = busbar(f"history {line}")
        assert said.status == 0
        assert not {"\x1b", "\x07"} & set(said.out)
