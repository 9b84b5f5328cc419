# SPDX-License-Identifier: MIT
"""The only place that prints: untrusted text cannot control the terminal.

Host names, log lines, file names and library names come from untrusted logs, images and machines.
They are printed as plain text: without markup, and with escapes for characters that a terminal
interprets or hides. ``tests/test_terminal.py`` refuses other ways to print.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import rich.console
import rich.progress
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from busbar.boundary import one_line, visible
from busbar.plain import GAP, Column, Part, Plain
from busbar.verdict import STYLES, Verdict

_SHORTEST = 8
"""Minimum width of a shortened column."""


class _Console(rich.console.Console):
    """A console for untrusted text, which is escaped when it is rendered."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, markup=False, highlight=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class Bar:
    """The progress of a run, shown only on a terminal."""

    def __init__(self, progress: rich.progress.Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def show(self, text: str) -> None:
        """Show what is running."""
        self._progress.update(self._task, description=one_line(text))

    def advance(self) -> None:
        """Count one as done."""
        self._progress.advance(self._task)


class Terminal(Plain):
    """Standard output or standard error."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._console = _Console(stream)

    def line(self, *parts: Part, style: str = "", wraps: bool = False) -> None:
        """Print one line, whatever ``parts`` contain; wrapped only on a terminal.

        Elsewhere, people grep lines.
        """
        pieces = [(part, "") if isinstance(part, str) else part for part in parts]
        wraps = wraps and self._stream.isatty()
        if style or wraps or any(style_of for _, style_of in pieces):
            shown = ((one_line(text), style_of) for text, style_of in pieces)
            self._console.print(Text.assemble(*shown, style=style), soft_wrap=not wraps)
        else:
            super().line(*parts)

    def headline(self, verdict: Verdict, text: str, following: str) -> None:
        """Print the first sentence and the next step."""
        self.line((verdict, f"bold {STYLES[verdict]}"), f": {text}")
        if following:
            self.line(("next", "bold"), f": {following}")

    def fitted(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Print a table with one line per row.

        On a narrow terminal, columns are omitted, then long cells are cut. Without a terminal, the
        table is as wide as its content.
        """
        cells = [[_cell(part) for part in row] for row in rows]
        names = [Text(column.name) for column in columns]
        widths = [
            max(cell.cell_len for cell in column) for column in zip(names, *cells, strict=True)
        ]
        limit = self._console.width if self._stream.isatty() else _UNLIMITED
        shown: list[int] = []
        for n in sorted(range(len(columns)), key=lambda n: columns[n].rank):
            filled = any(row[n].cell_len for row in cells)
            if not columns[n].rank or (filled and _total(widths, [*shown, n]) <= limit):
                shown.append(n)
        while _total(widths, shown) > limit:
            longest = max(shown, key=lambda n: widths[n])
            if widths[longest] <= _SHORTEST:
                break
            widths[longest] -= 1
        shown.sort()
        for row in [names, *cells]:
            line = Text()
            for n in shown:
                cell = row[n].copy()
                cell.truncate(widths[n], overflow="ellipsis")
                space = " " * (widths[n] - cell.cell_len)
                line.append_text(Text(space) + cell if columns[n].right else cell + Text(space))
                line.append(" " * GAP)
            line.rstrip()
            self._console.print(line, soft_wrap=True, style="bold" if row is names else "")

    @contextmanager
    def progress(self, total: int) -> Iterator[Bar]:
        """Show a bar with the current task, the number done of ``total``, and the elapsed time."""
        columns = (
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
        )
        progress = rich.progress.Progress(
            *columns,
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self._stream.isatty(),
        )
        with progress:
            yield Bar(progress, total)

    def rule(self) -> None:
        """Print a horizontal line."""
        self._console.rule()


_UNLIMITED = 1 << 16


def _cell(part: Part) -> Text:
    text, style = (part, "") if isinstance(part, str) else part
    return Text(one_line(text), style)


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[n] for n in shown) + GAP * (len(shown) - 1)


def stdout() -> Terminal:
    """Return the terminal for results."""
    return Terminal(sys.stdout)


def stderr() -> Terminal:
    """Return the terminal for progress and errors."""
    return Terminal(sys.stderr)
