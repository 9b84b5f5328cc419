# SPDX-License-Identifier: MIT
"""What copybench prints: ``1048576 bytes | 12.5 GB/s | 0 wrong``."""

from __future__ import annotations

import re

from busbar.engine.reading import Evidence, Reading
from busbar.engine.tool import TableReader
from busbar.parse import numbers
from busbar.parse.messages import table
from busbar.parse.text import decode

_ROW = re.compile(
    r"(?P<nbytes>\d{1,18}) bytes \| (?P<rate>\d{1,9}(?:\.\d*)?) GB/s \| (?P<wrong>\d{1,9}) wrong"
)


class CopybenchReader(TableReader):
    """Reads its rows."""

    triggers = ("^copybench ",)
    row_triggers = (r"bytes \| ",)
    messages = table("copybench")

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        text = decode(line)
        if text.startswith("copybench "):
            self.run.tool, self.run.version = "copybench", text.split()[1]
            return True
        match = _ROW.match(text)
        if match:
            self.run.readings.append(
                Reading(
                    *("bw", numbers.count(match["nbytes"]), numbers.real(match["rate"]) or 0.0),
                    wrong=numbers.count(match["wrong"]),
                    evidence=Evidence(self.runs.file, number, text),
                )
            )
        return match is not None
