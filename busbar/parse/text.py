# SPDX-License-Identifier: MIT
"""Text of job output of any size, in blocks of lines: colour codes, CRLF, NUL bytes, UTF-16."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 16
"""What follows in a longer line is dropped: no tool prints such lines, and memory stays
bounded."""

# CSI sequences (colours, cursor) and OSC sequences (titles) of ECMA-48, all others of ECMA-35.
# None crosses the end of a line, so no line is lost. An ESC without a sequence goes, too.
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])?")
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,16}m")
_HEAD_BYTES = 1 << 16
_MOST_COLOURS = 16
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True)
class Source:
    """A named stream of bytes."""

    name: str
    open: Callable[[], BinaryIO]
    first: int = 1
    """The number of its first line in the file of that name."""
    is_optional: bool = False
    """Whether to skip it if it is not text: the user did not name this file."""

    @classmethod
    def from_path(cls, path: Path) -> Source:
        """A file on disk, compressed or not."""
        return cls(str(path), lambda: path.open("rb"))

    @classmethod
    def from_text(cls, name: str, text: str | bytes, first: int = 1) -> Source:
        """Output that a caller already holds."""
        data = text.encode() if isinstance(text, str) else text
        return cls(name, lambda: io.BytesIO(data), first)


class Readable(Protocol):
    """What yields the bytes of an input, in pieces of any size."""

    def read(self, nbytes: int, /) -> bytes:
        """Return at most ``nbytes``; nothing at the end."""


def blocks(stream: Readable, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield cleaned lines in blocks of about 1 MiB, each with the number of its first line.

    Lines count from ``first``. A block ends with its last line, without the newline.
    """
    number, rest = first, b""
    for piece in _utf8(stream):
        end = piece.rfind(b"\n")
        if end < 0:
            rest += piece[: max(0, LONGEST_LINE - len(rest))]
            continue
        # The beginning of a line that goes on in the next piece is joined with it there.
        block = _clean(rest + piece[:end])
        rest = piece[end + 1 :][:LONGEST_LINE]
        yield number, block
        number += block.count(b"\n") + 1
    yield number, _clean(rest)


def _utf8(stream: Readable) -> Iterator[bytes]:
    """Yield the pieces of a stream, recoded if its first bytes are a mark of UTF-16."""
    start = stream.read(BLOCK_BYTES)
    has_nul = start.count(b"\0") * 4 > len(start)
    encoding = _UTF16.get(start[:2]) if has_nul else None
    if not encoding:
        start = start.removeprefix(codecs.BOM_UTF8)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    while start:
        yield decoder.decode(start).lstrip("\ufeff").encode() if decoder else start
        start = stream.read(BLOCK_BYTES)


def _clean(text: bytes) -> bytes:
    """Remove what hides words from the parsers. `busbar.terminal` decides what is shown."""
    if b"\x1b" in text or b"\r" in text or b"\0" in text:
        # What goes inside of a sequence goes first, so that none is put together afterwards.
        text = text.translate(None, b"\0\r")
        # Few colours repeat on each line, and to replace them one by one is faster.
        for colour in sorted(set(_COLOUR.findall(text, 0, _HEAD_BYTES)))[:_MOST_COLOURS]:
            text = text.replace(colour, b"")
        text = _ANSI.sub(b"", text)
    return text


def decode(line: bytes, limit: int = 2000) -> str:
    """Text of a line for people, cut at ``limit`` characters."""
    return line[:limit].decode("utf-8", "replace").rstrip()
