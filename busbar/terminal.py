# SPDX-License-Identifier: MIT
"""The only place that prints: the text of others cannot control the terminal.

Host names, log lines, file names and library names come from logs, images and machines that nobody
vouches for. They are shown as text: no markup, and characters that a terminal obeys or hides are
printed as escapes. ``tests/test_terminal.py`` refuses other ways to print.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import rich.console
import rich.progress
from rich.console import ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

__all__ = [
    "Bar",
    "Column",
    "Group",
    "Parser",
    "Part",
    "Table",
    "Terminal",
    "Text",
    "one_line",
    "stderr",
    "stdout",
]

Part = str | tuple[str, str]
"""Text, or text and its style."""

_GAP = 2
_SHORTEST = 8
"""Cells that a shortened column keeps."""

# Printable by Unicode's categories, and still without a glyph: joiners, fillers and selectors.
_INVISIBLE = frozenset(
    chr(code)
    for first, last in (
        (0x034F, 0x034F),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x2800, 0x2800),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFFA0, 0xFFA0),
        (0xE0100, 0xE01EF),
    )
    for code in range(first, last + 1)
)


def visible(text: str, keep: str = "\t\n") -> str:
    r"""Replace what a terminal obeys or does not show by escapes such as ``\x1b`` and ``\u202e``.

    That is all that Unicode does not call printable (controls, formats such as those of text
    direction, separators other than the space, lone surrogates, unassigned characters), except
    ``keep``.
    """
    if text.isprintable() and (text.isascii() or _INVISIBLE.isdisjoint(text)):
        return text
    return "".join(
        character
        if character in keep or (character.isprintable() and character not in _INVISIBLE)
        else _escape(character)
        for character in text
    )


def one_line(text: str) -> str:
    """Return ``text`` as a part of one line: a line feed is an escape, too."""
    return visible(text, keep="\t")


def _escape(character: str) -> str:
    code = ord(character)
    if character == "\n":
        return "\\n"
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 1 << 16
        else f"\\U{code:08x}"
    )


class _Console(rich.console.Console):
    """A console for the text of others.

    Strings are made visible before they are measured, so that tables stay straight; all other
    text when it is rendered.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(file=stream, markup=False, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


@dataclass(frozen=True)
class Column:
    """A column of a table that fits the terminal."""

    name: str
    right: bool = False
    """Whether it is aligned to the right."""
    rank: int = 0
    """The order in which columns get their place; a narrow terminal loses the last ones. Those of
    rank 0 are always there."""


class Bar:
    """The progress of a run on a terminal; elsewhere it shows nothing."""

    def __init__(self, progress: rich.progress.Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def show(self, text: str) -> None:
        """Name what is running."""
        self._progress.update(self._task, description=one_line(text))

    def advance(self) -> None:
        """Count one as done."""
        self._progress.advance(self._task)


class Terminal:
    """Standard output or standard error."""

    def __init__(self, stream: TextIO, *, log_width: int | None = None) -> None:
        """Print tables ``log_width`` wide if ``stream`` is not a terminal."""
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # any locale can print any text
        self._stream = stream
        self._console = _Console(stream)
        if log_width and not self._console.is_terminal:
            self._console.width = log_width

    def line(self, *parts: Part, style: str = "") -> None:
        """Print one line, whatever ``parts`` contain. It is not wrapped: people grep lines."""
        pieces = [(part, "") if isinstance(part, str) else part for part in parts]
        if style or any(style_of for _, style_of in pieces):
            shown = ((one_line(text), style_of) for text, style_of in pieces)
            self._console.print(Text.assemble(*shown, style=style), soft_wrap=True)
        else:
            self.text("".join(one_line(text) for text, _ in pieces) + "\n")

    def text(self, text: str) -> None:
        """Print lines as they are."""
        self._stream.write(visible(text))
        self._stream.flush()

    def document(self, document: Mapping[str, Any] | Sequence[Any], indent: int = 1) -> None:
        """Print JSON in ASCII without control characters."""
        text = json.dumps(document, indent=indent)
        self.text(text.replace("\x7f", "\\u007f") + "\n")  # the one that json leaves

    def show(self, renderable: RenderableType) -> None:
        """Print a table, or a group of tables and lines."""
        self._console.print(renderable)

    def fitted(self, columns: Sequence[Column], rows: Sequence[Sequence[Part]]) -> None:
        """Print a table whose rows are one line each on this terminal.

        A narrow terminal loses columns, and then the ends of long cells. Without a terminal the
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
                line.append(" " * _GAP)
            line.rstrip()
            self._console.print(line, soft_wrap=True, style="bold" if row is names else "")

    @contextmanager
    def progress(self, total: int) -> Iterator[Bar]:
        """Show a bar with what runs, how many of ``total`` are done, and the elapsed time."""
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
    return sum(widths[n] for n in shown) + _GAP * (len(shown) - 1)


def stdout(*, log_width: int | None = None) -> Terminal:
    """Return the terminal of results."""
    return Terminal(sys.stdout, log_width=log_width)


def stderr() -> Terminal:
    """Return the terminal of progress and errors."""
    return Terminal(sys.stderr)


class Parser(argparse.ArgumentParser):
    """A parser of arguments whose messages, which quote the arguments, are made visible."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stderr).write(visible(message))

    def error(self, message: str) -> NoReturn:
        """Print usage and ``message`` as one line, and exit with status 2."""
        super().error(one_line(message))
