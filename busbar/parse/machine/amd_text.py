# SPDX-License-Identifier: MIT
"""Parse ``amd-smi topology`` and ``static`` without ``--json``, and the tables of AMD's tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from busbar.parse import numbers
from busbar.parse.machine.amd_smi import AmdGpu, AmdLink, gpus_of, rate_range


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


_TITLE = re.compile(r"(?P<title>[A-Z][A-Z ]*) TABLE:")
_RATES = ("NUMA BW", "BANDWIDTH")
_LINE = re.compile(r"(?P<indent>\s*)(?P<key>[A-Z][A-Z0-9_ ]*):(?P<value>(?:\s.*)?)")


def parse_topology(text: str) -> tuple[AmdLink, ...]:
    """Parse the tables of links; GPUs are numbered in the order of the columns."""
    tables = {table.title: table for table in matrices(text, _TITLE)}
    kinds = tables.get("LINK TYPE")
    if kinds is None or len(kinds.devices) < 1:
        raise ValueError("no LINK TYPE TABLE")
    if any(table.devices != kinds.devices for table in tables.values()):
        raise ValueError("the tables are of different GPUs")
    rates = next((tables[title] for title in _RATES if title in tables), None)
    return tuple(
        AmdLink(
            src=pair[0],
            dst=pair[1],
            kind=kind,
            hops=_number(tables.get("HOPS"), pair),
            weight=_number(tables.get("WEIGHT"), pair),
            mb_per_s=rate_range(rates.cells[pair]) if rates else None,
        )
        for pair, kind in kinds.cells.items()
        if kind != "SELF"
    )


def parse_static(text: str) -> tuple[AmdGpu, ...]:
    """Parse the report, whose keys are those of the JSON in capitals, nested by indentation."""
    gpus: list[dict[str, Any]] = []
    path: list[tuple[int, dict[str, Any]]] = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if not match:
            continue
        indent, key, value = len(match["indent"]), match["key"].lower(), match["value"].strip()
        if key == "gpu" and value.isascii() and value.isdigit():
            gpus.append({"gpu": numbers.count(value)})
            path = [(indent, gpus[-1])]
            continue
        while path and indent <= path[-1][0] and len(path) > 1:
            path.pop()
        if not path:
            continue
        if not value:
            path[-1][1][key] = {}
            path.append((indent, path[-1][1][key]))
        else:
            path[-1][1][key] = _value(key, value)
    if not gpus:
        raise ValueError("no GPU listed")
    return gpus_of(gpus)


def _value(key: str, text: str) -> object:
    if key == "size" and (size := re.fullmatch(r"(?P<mib>\d+) M[iB]+", text)):
        return {"value": numbers.count(size["mib"])}
    return numbers.count(text) if key == "max_pcie_width" and numbers.is_whole(text) else text


def _number(table: Matrix | None, pair: tuple[int, int]) -> int | None:
    return numbers.whole(table.cells[pair]) if table else None
