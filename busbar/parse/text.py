# SPDX-License-Identifier: MIT
"""Reads job output of any size: gzip, colour codes, CRLF, NUL bytes, launcher prefixes."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 16
"""What follows in a longer line is dropped: no tool prints such lines, and memory stays
bounded."""

_GZIP_MAGIC = b"\x1f\x8b"
# CSI sequences (colours, cursor) and OSC sequences (titles) of ECMA-48, all others of ECMA-35.
# None crosses the end of a line, so no line is lost. An ESC without a sequence goes, too.
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~])?")
# srun -l ("3: "), mpirun --tag-output ("[1,3]<stdout>: ", "[prterun-host-1@1,3]<stderr>: "),
# Hydra's -prepend-rank ("[3] "), and the time that a log collector puts before them
# ("2026-11-21T07:23:34.5Z ").
LABEL = re.compile(
    rb"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? )?"
    rb"(?:\s*(?P<srun>\d{1,7}): ?|\[(?:[^\]\s]*,)?(?P<tag>\d+)\]<std(?:out|err)>:? ?"
    rb"|\[(?P<hydra>\d{1,7})\] )?"
)


@dataclass(frozen=True)
class Source:
    """A named stream of bytes; ``open`` gives it anew each time."""

    name: str
    open: Callable[[], BinaryIO]

    @classmethod
    def from_path(cls, path: Path) -> Source:
        """A file on disk, gzip or not."""
        return cls(str(path), lambda: path.open("rb"))

    @classmethod
    def from_text(cls, name: str, text: str | bytes) -> Source:
        """Output that a caller already holds."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return cls(name, lambda: io.BytesIO(data))


def open_plain(source: Source) -> BinaryIO:
    """The bytes of ``source``, unpacked if they are gzip."""
    stream = source.open()
    head = stream.read(2)
    stream.seek(0)
    if head == _GZIP_MAGIC:
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return stream


def line_blocks(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """Cleaned lines in blocks of about 1 MiB, each with the number of its first line (from 1).

    The last line of the last block is the rest after the last newline, so it is empty for a file
    that ends in one. A gzip stream that breaks off is read as far as it goes.
    """
    number, rest = 1, b""
    with open_plain(source) as stream:
        while block := read_bytes(stream, BLOCK_BYTES):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > LONGEST_LINE:
                rest = rest[:LONGEST_LINE]
            if lines:
                yield number, _clean(lines)
                number += len(lines)
    yield number, _clean([rest])


def read_bytes(stream: BinaryIO, nbytes: int) -> bytes:
    """At most ``nbytes``; nothing more from an archive that is cut or damaged."""
    try:
        return stream.read(nbytes)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return b""  # the archive was cut; what came before stands


def _clean(lines: list[bytes]) -> list[bytes]:
    """Remove what hides words from the parsers. `busbar.terminal` decides what is shown."""
    joined = b"\n".join(lines)
    if b"\x1b" in joined or b"\r" in joined or b"\0" in joined:
        # What goes inside of a sequence goes first, so that none is put together afterwards.
        joined = _ANSI.sub(b"", joined.translate(None, b"\0\r"))
        lines = joined.split(b"\n")
    return lines


def label_key(label: re.Match[bytes] | None) -> bytes:
    """The rank that a launcher's label names; empty without a label."""
    return (label["srun"] or label["tag"] or label["hydra"] or b"") if label else b""


def decode(line: bytes, limit: int = 2000) -> str:
    """Text of a line for people, cut at ``limit`` characters."""
    return line[:limit].decode("utf-8", "replace").rstrip()
