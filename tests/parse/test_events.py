# SPDX-License-Identifier: MIT
"""The JSON lines of our own programs, of this version and of released ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from busbar.parse.events import (
    BEGINNINGS,
    Error,
    ErrorCode,
    MalformedEventError,
    Placed,
    Start,
    parse,
)
from tests.cases import cases

RATE = '{"event": "reading", "metric": "bandwidth", "bytes": 8, "wrong": 0, "gb_per_s": 1}'


def test_every_recorded_line_is_read(data: Path) -> None:
    lines = [
        line
        for path in data.rglob("*.log")
        for line in path.read_text(errors="replace").splitlines()
        if line.startswith(BEGINNINGS)
    ]
    assert len(lines) > 500
    assert {type(parse(line)) for line in lines} >= {Start, Placed, Error}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("asked for 4 ranks, MPI started 1", "rank-count"),
        ("asked for 4 ranks, 2 started", "rank-count"),
        ("rank 3 of the node has no GPU of its own: 2 are visible", "too-few-gpus"),
        ("no GPU is visible to this rank", "too-few-gpus"),
        ("asked for 2 GPUs, 0 are visible", "too-few-gpus"),
        ("ranks 0 and 1 of the node share GPU 0000:06:00.0", "same-gpu"),
        ("rank 1 of the node is on GPU 0000:08:00.0, expected 0000:07:00.0", "wrong-gpu"),
        ("counting the visible GPUs: no CUDA-capable device is detected", "runtime"),
    ],
)
def test_errors_of_version_1_0_get_a_code(text: str, code: str) -> None:
    line = f'{{"event": "error", "rank": 3, "text": "{text}"}}'
    assert parse(line) == Error(3, code, text)


def test_the_programs_print_the_codes_that_are_read(root: Path) -> None:
    sources = root / "reframe_checks" / "src"
    codes = set(get_args(ErrorCode))
    faults = re.findall(r'\{\d, "([a-z-]+)"\}', (sources / "support.hpp").read_text())
    assert set(faults) == codes
    table = re.search(r"CODES = \{(.*)\}", (sources / "torch_collectives.py").read_text())
    assert table
    assert set(re.findall(r'"([a-z-]+)"', table[1])) < codes


def test_a_code_that_is_printed_counts() -> None:
    text = "something else, expected nothing"
    line = f'{{"event": "error", "rank": 0, "code": "runtime", "text": "{text}"}}'
    assert parse(line) == Error(0, "runtime", text)


def test_keys_of_a_newer_program_are_ignored() -> None:
    assert parse(RATE.replace("}", ', "new": [1]}')) == parse(RATE)


@cases(
    ("line", "says", "cut"),
    [
        (RATE[:40], "Unterminated string", True),
        ("[" * 100_000, "nested", True),
        ("[1]", "not a known event", False),
        ('{"event": "rate"}', "not a known event", False),
        ('{"event": "end"}', "end.wrong: Field required", False),
        (RATE.replace('"gb_per_s"', '"us"'), "the bandwidth has no value", False),
        (RATE.replace('"bytes": 8', '"bytes": "8"'), "reading.bytes: ", False),
        (RATE.replace('"bytes": 8', '"bytes": -8'), "reading.bytes: ", False),
        (RATE.replace('"bytes": 8', f'"bytes": {10**30}'), "reading.bytes: ", False),
        (RATE.replace('"gb_per_s": 1', '"gb_per_s": true'), "reading.gb_per_s: ", False),
        (RATE.replace("}", ', "cpu_wait_share": 1.5}'), "reading.cpu_wait_share: ", False),
        (RATE.replace("}", ', "cpu_wait_share": -1}'), "reading.cpu_wait_share: ", False),
        ('{"placed": {"rank": 0}}', "placed.host: Field required", False),
        ('{"placed": 0}', "not a known event", False),
        ('{"event": "error", "rank": 0, "code": "new", "text": ""}', "error.code: ", False),
    ],
)
def test_what_cannot_be_read_is_named(line: str, says: str, cut: bool) -> None:
    with pytest.raises(MalformedEventError, match=says) as raised:
        parse(line)
    assert raised.value.cut is cut
