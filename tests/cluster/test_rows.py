# SPDX-License-Identifier: MIT
"""The files between the steps of a sweep, whole and broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair, read_plan, read_results
from busbar.errors import BusbarError
from tests.cases import cases

GOOD = '{"round": 1, "a": "n1", "b": "n2", "nic": null, "gb_per_s": 25.0, "state": "ok"}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_rows_come_back_as_they_were_written(file: Path) -> None:
    planned = [PlannedPair(1, "n1", "n2"), PlannedPair(1, "n3", "n4")]
    file.write_text("".join(row.line() for row in planned))
    assert read_plan(file) == planned
    measured = [MeasuredPair(1, "n1", "n2", "mlx5_0", 24.5, PairState.OK)]
    measured += [MeasuredPair(2, "n1", "n2", None, None, state) for state in PairState]
    file.write_text("".join(row.line() for row in measured))
    assert list(read_results(file).rows) == measured


@cases("rate", ["NaN", "Infinity", "-Infinity", "-3", "0", "-0.0", "null"])
def test_a_rate_that_is_none_is_not_measured(file: Path, rate: str) -> None:
    file.write_text(GOOD.replace("25.0", rate))
    assert [row.gb_per_s for row in read_results(file).rows] == [None]


@cases("change", [('"ok"', '"timeout"'), ('"ok"', '"new"'), ('"n2"', "null")])
def test_other_states_and_missing_partners_are_not_measured(
    file: Path, change: tuple[str, str]
) -> None:
    file.write_text(GOOD.replace(*change))
    assert [row.gb_per_s for row in read_results(file).rows] == [None]


@cases(
    ("text", "cut", "rows"),
    [
        (f"{GOOD}\n{GOOD[:40]}", (2,), 1),
        (f"{GOOD}\n{GOOD[:40]}\n{GOOD}\n", (2,), 2),
        (f"{GOOD[:40]}{GOOD}\n{GOOD}", (1,), 2),
        (f"{GOOD}\n\n  \n{GOOD}\r\n", (), 2),
        (f"{GOOD}\n{{", (2,), 1),
        (f"{GOOD}\n\0\0\0", (), 1),
    ],
)
def test_a_killed_run_loses_one_line(
    file: Path, text: str, cut: tuple[int, ...], rows: int
) -> None:
    file.write_text(text)
    found = read_results(file)
    assert (found.cut_lines, len(found.rows)) == (cut, rows)


BROKEN = {
    "hello": "not a row of a sweep: is not JSON",
    "[]": "document: is not an object",
    "3": "document: is not an object",
    "{}": "round: Field required",
    GOOD.replace("1", '"1"', 1): "round: Input should be a valid integer",
    GOOD.replace("1", "-1", 1): "round: Input should be greater than or equal to 0",
    GOOD.replace("1", "1.5", 1): "round: Input should be a valid integer",
    GOOD.replace("1", "true", 1): "round: Input should be a valid integer",
    GOOD.replace('"n1"', '""'): "a: String should have at least 1 character",
    GOOD.replace('"n1"', '["n1"]'): "a: Input should be a valid string",
    GOOD.replace('"n1"', f'"{"n" * 300}"'): "a: String should have at most 255 characters",
    GOOD.replace('"n2"', '"n1"'): "the same node",
    GOOD.replace("25.0", '"25"'): "gb_per_s: Input should be a valid number",
    GOOD.replace("25.0", "true"): "gb_per_s: Input should be a valid number",
    GOOD.replace("25.0", "1e999"): "a number that is out of range",
    GOOD.replace('"ok"', "7"): "state: Input should be 'ok', 'wrong'",
    GOOD.replace('"ok"', '""'): "state: Input should be 'ok', 'wrong'",
    GOOD.replace("null", "4"): "nic: Input should be a valid string",
    "[" * 100_000: "more than 65,536 bytes",
    '{"a":' * 5000: "not a row of a sweep: is not JSON",
}


def test_an_error_names_file_and_line(file: Path) -> None:
    wrong = {}
    for line, words in {**BROKEN, "": f"^{file}: has no rows"}.items():
        file.write_text(f"{GOOD}\n{line}\n{GOOD}\n" if line else "")
        try:
            found = str(read_results(file))
        except BusbarError as error:
            found = str(error)
        if not re.search(f"^{file}:2: .*{re.escape(words)}" if line else words, found):
            wrong[line[:99]] = found
    assert wrong == {}


def test_a_plan_has_each_node_once_a_round(file: Path) -> None:
    file.write_text('{"round":1,"a":"x","b":"y"}\n{"round":1,"a":"y","b":"z"}\n')
    with pytest.raises(BusbarError, match=r":2: node y is in round 1 twice"):
        read_plan(file)
    file.write_text('{"round":1,"a":"x","b":null}\n')
    with pytest.raises(BusbarError, match="b: Input should be a valid string"):
        read_plan(file)


def test_a_missing_file_and_a_directory(file: Path) -> None:
    for path in (file, file.parent):
        with pytest.raises(BusbarError, match=re.escape(str(path))):
            read_results(path)
