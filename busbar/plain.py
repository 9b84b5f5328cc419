# SPDX-License-Identifier: MIT
"""Print untrusted text so that it cannot control the terminal; standard library only.

`busbar.terminal` adds styles, wrapping tables and progress. ``tests/test_terminal.py`` refuses
other ways to print.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from busbar.boundary import one_line, visible

Part = str | tuple[str, str]
"""Text, or text and its style."""

GAP = 2
"""Spaces between two columns."""


@dataclass(frozen=True)
class Column:
    """A column of a table that fits the terminal."""

    name: str
    right: bool = False
    """Whether to align it to the right."""
    rank: int = 0
    """Placement order; a narrow terminal omits the last columns, but never rank 0's."""


class Plain:
    """Standard output or standard error, without styles."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # print any text in any locale
        self._stream = stream

    def line(self, *parts: Part, style: str = "") -> None:
        """Print one line, whatever ``parts`` contain, without wrapping: people grep lines."""
        self.text("".join(one_line(_text(part)) for part in parts) + "\n")

    def text(self, text: str) -> None:
        """Print lines unchanged."""
        self._stream.write(visible(text))
        self._stream.flush()

    def document(self, document: Mapping[str, Any] | Sequence[Any], indent: int = 1) -> None:
        """Print JSON in ASCII without control characters."""
        text = json.dumps(document, indent=indent)
        self.text(text.replace("\x7f", "\\u007f") + "\n")  # json does not escape DEL

    def fitted(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Print a table with one line per row, as wide as its content."""
        cells = [[one_line(_text(part)) for part in row] for row in rows]
        table = [[column.name for column in columns], *cells]
        shown = [
            n
            for n, column in enumerate(columns)
            if not column.rank or any(row[n] for row in cells)
        ]
        widths = {n: max(len(row[n]) for row in table) for n in shown}
        for row in table:
            words = (
                row[n].rjust(widths[n]) if columns[n].right else row[n].ljust(widths[n])
                for n in shown
            )
            self.text((" " * GAP).join(words).rstrip() + "\n")


def _text(part: Part) -> str:
    return part if isinstance(part, str) else part[0]


def stdout() -> Plain:
    """Return the screen for results."""
    return Plain(sys.stdout)


def stderr() -> Plain:
    """Return the screen for errors."""
    return Plain(sys.stderr)
