# SPDX-License-Identifier: MIT
"""Draw the expected matrix of all pairs as a heat map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from busbar.boundary import replace_file
from busbar.engine.results import Result
from busbar.errors import BusbarError, file_error
from busbar.expect.show import Answer
from busbar.report.matrix import matrix
from busbar.report.page import drawing
from busbar.verdict import Verdict


def check_name(file: Path) -> None:
    """Raise ``BusbarError`` for a format other than .svg, or a missing directory."""
    if file.suffix != ".svg":
        raise BusbarError("unknown picture format", where=str(file), hint="use .svg")
    if not file.parent.is_dir():
        raise BusbarError("no such directory", where=str(file.parent), hint="create it")


def plot_matrix(file: Path, title: str, answers: Mapping[tuple[int, int], Answer]) -> None:
    """Write a heat map of the typical value of each pair, or its limit if there is no band.

    Raises ``BusbarError`` if the picture has fewer than three GPUs or cannot be written.
    """
    picture = matrix(title, list(_rows(answers)), None)
    if picture is None:
        raise BusbarError("needs three GPUs", where="--plot", hint="read the table")
    with file_error("cannot be written", file):
        replace_file(file, drawing(picture))


def _rows(answers: Mapping[tuple[int, int], Answer]) -> Iterator[Result]:
    for (source, target), answer in answers.items():
        typical = answer.number("typical")
        value = typical if typical is not None else answer.number("limit")
        latency = answer.unit == "us"
        yield Result(
            check="",
            verdict=Verdict.UNJUDGED,
            pair=f"{source}->{target}",
            metric="latency" if latency else "bandwidth",
            us=value if latency else None,
            gb_per_s=None if latency else value,
        )
