# SPDX-License-Identifier: MIT
"""What libfabric's ``fi_pingpong`` and the tests of fabtests print, by their headings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from busbar.parse import numbers

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_THOUSANDS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}
_DIGITS = 1e-3
_SIZE = re.compile(r"(?P<number>\d+)(?P<unit>[kmg]?)$")


class FabtestsRow(NamedTuple):
    """One size."""

    nbytes: int
    gb_per_s: float
    """What the tools call MB/s is bytes in a microsecond."""
    all_arrived: bool
    """``fi_pingpong`` counts what came back; other tools stop at the first loss."""
    agrees: bool = True
    """Whether size, count, time per message and rate belong to one another."""
    sent: int | None = None
    """Messages, where the tool counts them."""


def rows(lines: Iterable[str]) -> list[FabtestsRow]:
    """Every result row; raises ``ValueError`` for one that does not fit its headings."""
    table: list[FabtestsRow] = []
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
            nbytes = numbers.count(size["number"]) * _UNITS[size["unit"]]
            rate, each = numbers.real(row["MB/sec"]), numbers.real(row.get("usec/xfer", "nan"))
            if rate is None:
                raise ValueError(f"{line.strip()!r} has no rate")
            each = math.nan if each is None else each
            back = row.get("#ack", "").removeprefix("=") or row.get("#sent", "")
            # The rate has two decimals.
            same = math.isnan(each) or math.isclose(
                rate * each, nbytes, rel_tol=_DIGITS, abs_tol=0.006 * each
            )
            sent = _SIZE.match(row.get("#sent", ""))
            table.append(
                FabtestsRow(
                    nbytes,
                    rate / 1e3,
                    back == row.get("#sent", ""),
                    same,
                    numbers.count(sent["number"]) * _THOUSANDS[sent["unit"]] if sent else None,
                )
            )
    return table
