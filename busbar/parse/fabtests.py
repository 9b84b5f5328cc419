# SPDX-License-Identifier: MIT
"""What libfabric's ``fi_pingpong`` and the tests of fabtests print, by their headings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from busbar.parse import numbers

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(?P<number>\d+)(?P<unit>[kmg]?)$")
_PROVIDER = re.compile(r"\s*prov_name: (?P<name>\S+)\s*$")


class Row(NamedTuple):
    """One size."""

    nbytes: int
    gb_per_s: float
    """What the tools call MB/s is bytes in a microsecond."""
    all_arrived: bool
    """``fi_pingpong`` counts what came back; other tools stop at the first loss."""


def rows(lines: Iterable[str]) -> list[Row]:
    """Every result row; raises ``ValueError`` for one that does not fit its headings."""
    table: list[Row] = []
    names: list[str] = []
    for line in lines:
        words = line.split()
        if "bytes" in words and "MB/sec" in words:
            names = words
        elif names and words and _SIZE.match(words[names.index("bytes")]):
            if len(words) != len(names):
                raise ValueError(f"{line.strip()!r} does not fit {' '.join(names)!r}")
            row = dict(zip(names, words, strict=True))
            size = _SIZE.match(row["bytes"])
            assert size is not None
            rate = numbers.real(row["MB/sec"])
            if rate is None:
                raise ValueError(f"{line.strip()!r} has no rate")
            back = row.get("#ack", "").removeprefix("=") or row.get("#sent", "")
            table.append(
                Row(
                    numbers.count(size["number"]) * _UNITS[size["unit"]],
                    rate / 1e3,
                    back == row.get("#sent", ""),
                )
            )
    return table


def providers(lines: Iterable[str]) -> set[str]:
    """The providers that ``fi_pingpong -v`` says it used."""
    return {match["name"] for line in lines if (match := _PROVIDER.match(line))}
