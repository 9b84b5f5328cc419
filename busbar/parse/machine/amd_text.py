# SPDX-License-Identifier: MIT
"""Parse ``amd-smi topology`` and ``amd-smi static`` without ``--json``."""

from __future__ import annotations

import re
from typing import Any

from busbar.parse import numbers
from busbar.parse.machine.amd_smi import AmdGpu, AmdLink, gpus_of, rate_range
from busbar.parse.machine.matrix import Matrix, matrices

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
