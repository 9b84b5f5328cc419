# SPDX-License-Identifier: MIT
"""Readings of recorded runs, by file under tests/data."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def osu(name: str) -> list[tuple[int, float]]:
    """(bytes, value) of an OSU table: MB/s of 1e6 bytes, or us."""
    text = (DATA / name).read_text(errors="replace")
    rows = re.findall(r"^(\d+) +([\d.]+)(?: +[\d.]+)?\s*$", text, re.MULTILINE)
    return [(int(size), float(value)) for size, value in rows]


def osu_gb_per_s(name: str) -> list[tuple[int, float]]:
    """(bytes, GB/s) of an OSU bandwidth table."""
    return [(size, value / 1e3) for size, value in osu(name)]


def tuning(bench: str, stack: str) -> list[tuple[int, float]]:
    """(bytes, value) of one part of h200x2/osu_tuning.tsv, the stack by the end of its name."""
    lines = (DATA / "h200x2/osu_tuning.tsv").read_text().splitlines()
    rows = csv.DictReader([line for line in lines if not line.startswith("#")], delimiter="\t")
    return [
        (int(row["bytes"]), float(row["value"]))
        for row in rows
        if row["bench"] == bench and row["stack"].endswith(stack)
    ]


def nccl(name: str) -> list[tuple[int, float]]:
    """(bytes, busbw out of place) of an nccl-tests log, whose rows NCCL's own lines may cut."""
    text = (DATA / name).read_text(errors="replace")
    readings = []
    size = None
    for line in text.splitlines():
        start = re.match(r" +(\d+) +\d+ +float +sum +-1(.*)", line)
        if start:
            size = int(start[1])
        rest = start[2] if start else line
        numbers = re.match(r" +[\d.]+ +[\d.]+ +([\d.]+) +0\b", rest)
        if size and numbers:
            readings.append((size, float(numbers[1])))
            size = None
    return readings


def nccl_json(name: str) -> list[tuple[int, float]]:
    """(bytes, busbw out of place) of an nccl-tests JSON report."""
    results = json.loads((DATA / name).read_text())["results"]
    return [(row["size"], row["out_of_place"]["bus_bw"]) for row in results]
