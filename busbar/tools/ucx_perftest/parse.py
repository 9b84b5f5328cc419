# SPDX-License-Identifier: MIT
"""The result of ``ucx_perftest``, UCX 1.14 to 1.22."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
FINAL = "Final:"
"""Begins the last row."""
_DIGITS = 0.005
"""Share by which printed numbers may differ: of a message rate there may be three digits."""


@dataclass(frozen=True)
class UcxRow:
    """Half of the columns of a row."""

    iterations: int
    time_us: float
    gb_per_s: float
    """What the tool calls MB/s is 2**20 bytes a second (it divides by 1024 * 1024)."""
    messages: float
    """Messages per second."""

    def agrees(self, nbytes: int) -> bool:
        """Whether time, rate and messages belong to one another, for messages of ``nbytes``."""
        if not (self.time_us > 0 and math.isfinite(self.time_us)):
            return False
        rate, messages = nbytes / self.time_us * 1e-3, 1e6 / self.time_us
        return math.isclose(rate, self.gb_per_s, rel_tol=_DIGITS) and math.isclose(
            messages, self.messages, rel_tol=_DIGITS, abs_tol=1.0
        )


def rows(lines: Iterable[str]) -> Iterator[UcxRow]:
    """Yield the averages of each interval, if it is not empty, and what was reached until then."""
    for row in filter(None, map(_ROW.match, lines)):
        _, *values = map(numbers.real_or_nan, row["values"].split())
        for time, rate, messages in (values[::2], values[1::2]):
            if values[1] == time or 0 < time < math.inf:
                yield UcxRow(numbers.count(row["iterations"]), time, rate * _MIB / 1e9, messages)


def final_row(lines: Iterable[str]) -> UcxRow | None:
    """Parse the last result row; None without one."""
    return next(reversed([*rows(lines)]), None)


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
