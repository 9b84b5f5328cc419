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
            rate, sent = numbers.real(row["MB/sec"]), row.get("#sent", "")
            if rate is None:
                raise ValueError(f"{line.strip()!r} has no rate")
            count = _sized(sent or row.get("iters", ""), _THOUSANDS)
            back = row.get("#ack", sent).removeprefix("=")
            table.append(FabtestsRow(nbytes, rate / 1e3, back == sent, _agree(row, rate), count))
    return table


def _agree(row: Mapping[str, str], rate: float) -> bool:
    """Whether the columns of a row belong to one another; ``rate`` is bytes in a microsecond.

    Rate, times and messages have two decimals, the total is cut to one decimal of its unit.
    """
    nbytes, sent, total = (_sized(row.get(name, "")) or 0 for name in ("bytes", "#sent", "total"))
    each, lasted_s, messages = (
        numbers.real(row.get(name, "").rstrip("s")) for name in ("usec/xfer", "time", "Mxfers/sec")
    )
    cut = 0.11 * _UNITS.get(row.get("total", "")[-1:], 1)
    pairs: list[tuple[float, float, float]] = []
    if each is not None:
        pairs += [(rate * each, nbytes, 0.006 * abs(each))]
    if each and messages is not None:
        pairs += [(1 / each, messages, 0.006)]
    if total and sent and row["#sent"].isdigit():  # there and back; a longer number is cut
        pairs += [(2 * sent * nbytes, total, cut)]
    if total and rate and lasted_s is not None:
        pairs += [(total / rate * 1e-6, lasted_s, 0.006 + abs(cut / rate) * 1e-6)]
    return all(math.isclose(a, b, rel_tol=_DIGITS, abs_tol=slack) for a, b, slack in pairs)


def _sized(word: str, units: Mapping[str, int] = _UNITS) -> int | None:
    size = _SIZE.match(word)
    return round(numbers.real_or_nan(size["number"]) * units[size["unit"]]) if size else None
