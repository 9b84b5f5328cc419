# SPDX-License-Identifier: MIT
"""Parse the tables of AMD's tools with one row and one column per GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Matrix(NamedTuple):
    """One table."""

    title: str
    devices: tuple[str, ...]
    """The names of the columns, in order."""
    cells: dict[tuple[int, int], str]
    """By row and column."""


def matrices(text: str, title: re.Pattern[str]) -> Iterator[Matrix]:
    """Yield the tables below the lines that match ``title``, with its group ``title``.

    Raises ``ValueError`` for a table that does not have one row for each column.
    """
    lines = [line.strip() for line in text.splitlines()]
    for index, line in enumerate(lines):
        if match := title.fullmatch(line):
            yield _matrix(match["title"], [line for line in lines[index + 1 :] if line])


def _matrix(title: str, lines: list[str]) -> Matrix:
    devices = tuple(lines[0].split()) if lines else ()
    cells: dict[tuple[int, int], str] = {}
    for row, device in enumerate(devices):
        words = lines[row + 1].split() if row + 1 < len(lines) else []
        if words[:1] != [device] or len(words) != len(devices) + 1:
            raise ValueError(f"{title}: no row {device} with {len(devices)} cells")
        cells |= {(row, column): word for column, word in enumerate(words[1:])}
    return Matrix(title, devices, cells)
