# SPDX-License-Identifier: MIT
"""The result of ``ucx_perftest``, UCX 1.14 to 1.22."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from busbar.engine.reading import Evidence, Reading
from busbar.engine.tool import TableReader
from busbar.parse import numbers
from busbar.parse.text import decode

_MIB = 2**20
# Median, average and overall time, average and overall bandwidth, two message rates. After the
# last interval nothing may be left to average: its columns are then `inf`, `nan` or 0.
_ROW = re.compile(
    r"\s*(?:Final:\s*)?(?P<iterations>\d{1,18})"
    r"(?P<values>(?:\s+(?:\d+(?:\.\d+)?|-?inf|-?nan)){7})\s*$"
)
TITLE = re.compile(r"\|.*\((?:usec|nsec)\).*bandwidth \(MB/s\)")
"""Heads the table in the units that are known."""
FINAL = "Final:"
"""Begins the last row."""
_DIGITS = 0.005
"""Share by which printed numbers may differ: of a message rate there may be three digits."""


_Columns = tuple[float, float, float]
"""Time in us, rate in MB/s, and messages a second."""


class UcxRow(NamedTuple):
    """A row of the table."""

    iterations: int
    average: _Columns
    """Of the last interval."""
    overall: _Columns

    @property
    def gb_per_s(self) -> float:
        """What the tool calls MB/s is 2**20 bytes a second (it divides by 1024 * 1024)."""
        return self.overall[1] * _MIB / 1e9

    def agrees(self, nbytes: int) -> bool:
        """Whether the columns belong to one another; an empty interval has no average."""
        empty = not 0 < self.average[0] < math.inf
        return _agree(self.overall, nbytes) and (empty or _agree(self.average, nbytes))


def _agree(columns: _Columns, nbytes: int) -> bool:
    time_us, rate, messages = columns
    if not 0 < time_us < math.inf:
        return False
    return math.isclose(nbytes / time_us * 1e6 / _MIB, rate, rel_tol=_DIGITS) and math.isclose(
        1e6 / time_us, messages, rel_tol=_DIGITS, abs_tol=1.0
    )


def rows(lines: Iterable[str]) -> list[UcxRow]:
    """Parse the result rows: one for each interval, then the final one."""
    found = []
    for row in filter(None, map(_ROW.match, lines)):
        _, time, times, rate, rates, count, counts = map(
            numbers.real_or_nan, row["values"].split()
        )
        columns = (time, rate, count), (times, rates, counts)
        found.append(UcxRow(numbers.count(row["iterations"]), *columns))
    return found


def final_row(lines: Iterable[str]) -> UcxRow | None:
    """Parse the last result row; None without one."""
    return next(reversed(rows(lines)), None)


class UcxReader(TableReader):
    """Takes the last row, whose size only the command line has."""

    row_triggers = (r"Final:[ \t]+\d",)

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        if b"Final:" not in line or not line.lstrip().startswith(b"F"):
            return False
        facts, evidence = self.run, Evidence(self.runs.file, number, decode(line))
        row = final_row([evidence.text])
        command = next(
            (each for each, _ in reversed(facts.commands) if each.program == "ucx_perftest"), None
        )
        size = numbers.whole(command.option("-s")) if command else None
        if not (command and row and size):
            return False
        facts.tool = facts.tool or "ucx_perftest"
        facts.buffers = "H H" if command.option("-m") in ("", "host") else "D D"
        words = (command.option("-t"), command.environment.get("UCX_NET_DEVICES", ""))
        reading = Reading(
            *("bw", size, row.gb_per_s),
            evidence=evidence,
            buffers=facts.buffers,
            operation=" ".join(filter(None, words)),
        )
        facts.readings.append(reading)
        return True
