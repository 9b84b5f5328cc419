# SPDX-License-Identifier: MIT
"""What libfabric's ``fi_pingpong`` and the tests of fabtests print, by their headings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from busbar.parse import numbers

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_THOUSANDS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}
_DIGITS = 1e-3
_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d)?)(?P<unit>[kmg]?)$")


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
        elif names and words and (nbytes := _sized(words[names.index("bytes")])) is not None:
            if len(words) != len(names):
                raise ValueError(f"{line.strip()!r} does not fit {' '.join(names)!r}")
            row = dict(zip(names, words, strict=True))
            rate, each = numbers.real(row["MB/sec"]), numbers.real_or_nan(row.get("usec/xfer", ""))
            if rate is None:
                raise ValueError(f"{line.strip()!r} has no rate")
            back = row.get("#ack", row.get("#sent", "")).removeprefix("=")
            same = math.isnan(each) or _product(rate, each, nbytes, _DIGITS)
            # The total is cut to one decimal of its unit.
            total, lasted = _sized(row.get("total", "")), row.get("time", "")
            if total and lasted:
                same &= _product(rate, numbers.real_or_nan(lasted.rstrip("s")), total * 1e-6, 0.1)
            sent = row.get("#sent", "")
            count = _sized(sent or row.get("iters", ""), _THOUSANDS)
            if total and count and sent:  # there and back
                same &= math.isclose(2 * count * nbytes, total, rel_tol=0.1)
            table.append(FabtestsRow(nbytes, rate / 1e3, back == sent, same, count))
    return table


def _product(rate: float, time: float, size: float, share: float) -> bool:
    """Whether a rate times a time, of two decimals each, is a size."""
    return abs(rate * time - size) <= share * size + 0.006 * (rate + time)


def _sized(word: str, units: Mapping[str, int] = _UNITS) -> int | None:
    size = _SIZE.match(word)
    return round(numbers.real_or_nan(size["number"]) * units[size["unit"]]) if size else None
