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
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import rich.console
from rich.console import ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

__all__ = ["Group", "Parser", "Part", "Table", "Terminal", "Text", "one_line", "stderr", "stdout"]

Part = str | tuple[str, str]
"""Text, or text and its style."""

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

    def rule(self) -> None:
        """Print a horizontal line."""
        self._console.rule()


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
