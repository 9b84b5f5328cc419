# SPDX-License-Identifier: MIT
"""Comparison, baseline and what the commands print."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from busbar import cli
from busbar.history.baseline import baseline
from busbar.history.events import find_events
from busbar.history.model import HistoryBounds
from busbar.history.read import history, read_series
from busbar.history.record import HistoryRecord, Measured
from busbar.history.store import open_store
from busbar.site.calibration import SeriesKey

SERIES = SeriesKey(
    check="xccl",
    partition="gpu",
    bench="all_reduce",
    harness="nccl-tests",
    lane="ucx-1.14",
    nodes=1,
    ranks=4,
    kind="busbw",
    bytes=1 << 24,
)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "history"
    monkeypatch.setenv("BUSBAR_HISTORY", str(directory))
    return directory


def run(*words: object) -> int:
    return cli.main(["history", *map(str, words)])


def fill(directory: Path, factor: float = 1.0, nights: int = 40) -> None:
    """Store nights of two deliveries with another driver; spack is faster by ``factor``."""
    rng = np.random.default_rng(0)
    with open_store(directory, to_write=True) as opened:
        for number, (delivery, driver) in enumerate((("wheels", "570"), ("spack", "580"))):
            records = []
            for night in range(nights):
                row = Measured(
                    node="n1",
                    metric="busbw 16 MiB",
                    unit="GB/s",
                    value=100 * (1 + 0.01 * rng.normal()) * (factor if number else 1),
                    series=SERIES,
                    **vars(HistoryBounds(90, 100, 110, 200)),
                )
                records.append(
                    HistoryRecord(
                        check="xccl",
                        partition="gpu",
                        lane="ucx-1.14",
                        delivery=delivery,
                        rows=(row,),
                        provenance={"driver": driver},
                        site="alpha",
                        time=1.7e9 + night * 86400,
                    )
                )
            opened.add(f"session {number}", "host", records)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("delivery=wheels", "delivery=spack"),
        ("driver=570", "delivery=spack"),
        ("0", "session 1"),
    ],
)
def test_compare(a: str, b: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store, 1.02)
    assert run("compare", a, b, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["series"]
    assert row["ratio_low"] < 1.02 < row["ratio_high"]
    assert row["differs"]
    assert row["readings_a"] == row["readings_b"] == 40


def test_what_is_the_same_does_not_differ(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store)
    assert run("compare", "2023-01-01..2023-12-01", "2023-12-01..", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["series"]
    assert not any(row["differs"] for row in rows)


@pytest.mark.parametrize(
    ("b", "hint"),
    [("drivr=580", "driver"), ("driver=9", "list"), ("session 7", "list"), ("x..y", "ISO 8601")],
)
def test_a_selection_without_readings(
    b: str, hint: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store)
    assert run("compare", "driver=570", b) == 2
    assert hint in capsys.readouterr().err


def test_baseline_is_what_calibrate_reads(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store, nights=10)
    output = tmp_path / "nights"
    assert run("baseline", "--site", "alpha", "--nights", 5, "--output", output, "--json") == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert len(files) == 5
    from busbar.check.calibrate import calibrate
    from busbar.commands.calibrate import _document

    found = calibrate({file: _document(Path(file)) for file in files}, site="alpha")
    (band,) = found.calibration.bands
    assert band.series == SERIES
    assert band.typical == pytest.approx(100, rel=0.02)
    assert run("baseline", "--site", "beta", "--output", output) == 2
    with pytest.raises(SystemExit):
        run("baseline", "--site", "alpha", "--nights", 1, "--output", output)


def test_a_series_that_changed_is_no_baseline(store: Path) -> None:
    fill(store, nights=60)
    with open_store(store, to_write=True) as opened:
        opened.connection.execute(
            "UPDATE reading SET value = value * 0.93 WHERE series = 1 AND time >= ?",
            (1.7e9 + 50 * 86400,),
        )
        opened.connection.commit()
    with history() as opened:
        series = read_series(opened)
        found = baseline("alpha", series, find_events(series, {}), 20)
    assert [key.delivery for key in found.too_new] == ["wheels"]
    assert {row.where for each in found.documents for row in each.results} == {"n1"}


def test_a_site_with_a_slash_whose_readings_make_no_band(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    rows = [
        {
            "time": f"2026-01-{1 + n // 2:02}",
            "site": "up/down",
            "metric": f"m{n % 2}",
            "value": 9 + n,
        }
        for n in range(20)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert run("import", file) == 0
    assert run("baseline", "--site", "up/down", "--output", tmp_path / "out") == 2
    assert "no readings that bands are made of" in capsys.readouterr().err
    assert cli.main(["report", "--site", "up/down", "--summary"]) == 0
    assert "up/down: unjudged: nothing became worse in 2 series\n" in capsys.readouterr().out
    assert run("list", "--site", "down") == 2


@pytest.mark.parametrize("words", [["list"], ["show"], ["changes"], ["show", "nothing"]])
def test_an_empty_history(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    assert run(*words, "--json") == 0
    assert capsys.readouterr().out


def test_text_of_others_cannot_control_the_terminal(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    row = {"time": 1.7e9, "site": "a\x1b[2J", "metric": "m\n\x07", "value": 1, "node": "<b>"}
    file.write_text(json.dumps(row))
    assert run("import", file) == 0
    for words in (["list"], ["show"], ["show", "--json"]):
        assert run(*words) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
