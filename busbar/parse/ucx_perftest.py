# SPDX-License-Identifier: MIT
"""The result of ``ucx_perftest``, UCX 1.14 to 1.22."""

from __future__ import annotations

import re
from collections.abc import Iterable

from busbar.parse import numbers

_MIB = 2**20
# Iterations, median, average and overall time, average and overall bandwidth, two message rates.
# After the last interval nothing may be left to average, which is then `inf`.
_ROW = re.compile(r"\s*(?:Final:)?\s*\d+(?P<values>(?:\s+(?:\d+(?:\.\d+)?|inf)){7})\s*$")


def bandwidth(lines: Iterable[str]) -> float | None:
    """Overall bandwidth in GB/s of the last result row; None without one.

    What the tool calls MB/s is 2**20 bytes a second (``ucx_perftest.c`` divides by 1024 * 1024).
    """
    gb_per_s = None
    for line in lines:
        if row := _ROW.match(line):
            rate = numbers.real(row["values"].split()[4])
            gb_per_s = None if rate is None else rate * _MIB / 1e9
    return gb_per_s
