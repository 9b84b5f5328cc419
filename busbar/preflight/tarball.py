# SPDX-License-Identifier: MIT
"""List the members of an untrusted tar archive within fixed limits; nothing is unpacked."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, cast

from busbar.errors import BusbarError

MOST_MEMBERS = 1_000_000
_MOST_NAME = 4096  # PATH_MAX of Linux
_MOST_HEADER = 2**15
"""Bytes of the headers of one member; Docker and Podman write a few hundred. Records that overlap
make tarfile keep the square of their bytes: 100 MiB of these, and 6 GiB of 250 KiB."""
# tarfile of Python before 3.11.10 searches a header for numbers, in a time that grows with the
# square of their length: seconds for 30,000 digits. No file name has as many as these.
_NUMBER = re.compile(rb"[0-9]{256}")
_BLOCK = 2**20
_SECONDS = 120.0
_UNPACK_S = 1800.0
_COMPRESSED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
# What the decompressors and tarfile raise on damage. Nested headers recurse.
_DAMAGE = (
    *(tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError),
    *(RecursionError, MemoryError, OverflowError, KeyError, IndexError, TypeError),
)


class _Limited:
    """The bytes of an archive; refuses large headers and long work."""

    def __init__(self, stream: BinaryIO, where: str, end: float) -> None:
        self._stream = stream
        self._where = where
        self._compressed = not isinstance(stream, io.BufferedReader)
        self._at = 0
        self._header = 0
        self._end = end

    def begin_member(self) -> None:
        self._header = 0

    def read(self, size: int) -> bytes:
        # tarfile reads only headers; it skips content by seek.
        self._header += size
        if self._header > _MOST_HEADER:
            raise _refused(self._where, f"a header has more than {_MOST_HEADER >> 10} KiB")
        self._check_time()
        data = self._stream.read(size)
        self._at += len(data)
        if _NUMBER.search(data):
            raise _refused(self._where, "a header has a number of more than 255 digits")
        return data

    def seek(self, position: int) -> None:
        if not self._compressed:
            self._at = self._stream.seek(position)
            return
        if position < self._at:
            raise tarfile.ReadError("members overlap")
        while self._at < position:
            self._check_time()
            data = self._stream.read(min(_BLOCK, position - self._at))
            if not data:
                raise EOFError
            self._at += len(data)

    def tell(self) -> int:
        return self._at

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            raise _refused(self._where, "its members cannot be listed in time")


def _refused(where: str, what: str) -> BusbarError:
    return BusbarError(what, where=where, hint="rebuild the image; this one is damaged or hostile")


def members(path: Path, where: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive, which may be compressed; errors name it ``where``.

    Raises ``BusbarError`` for a damaged archive and for one that exceeds a limit.
    """
    with path.open("rb") as file:
        yield from _members(file, where, time.monotonic() + _SECONDS)


def unpacked_bytes(path: Path, where: str, most: int) -> int:
    """Return how much the layers of an archived image hold, compressed ones unpacked.

    Raises ``BusbarError`` for more than ``most``, and where `members` does. Layers by zstd count
    with their packed size: Python cannot read them.
    """
    total, end = 0, time.monotonic() + _UNPACK_S
    with path.open("rb") as outer, path.open("rb") as inner:
        content = _decompressed(inner)

        def read_at(length: int, position: int) -> bytes:
            content.seek(position)
            return content.read(length)

        for member in _members(outer, where, end):
            sizes: Iterable[int] = [member.size]
            part = io.BufferedReader(Part(read_at, member.offset_data, member.size))
            if kind_of(member) == "file" and _is_tar(_decompressed(part)):
                part.seek(0)
                sizes = (each.size for each in _members(part, where, end))
            for size in sizes:
                total += size
                if total > most:
                    raise _refused(where, f"unpacks to more than {most >> 30} GiB")
    return total


def _members(file: BinaryIO, where: str, end: float) -> Iterator[tarfile.TarInfo]:
    try:
        with closing(_decompressed(file)) as stream:
            limited = _Limited(stream, where, end)
            archive = tarfile.TarFile(fileobj=cast(BinaryIO, limited))
            count = 0
            while info := archive.next():
                count += 1
                if count > MOST_MEMBERS:
                    raise _refused(where, f"has more than {MOST_MEMBERS:,} members")
                if max(len(info.name), len(info.linkname)) > _MOST_NAME:
                    raise _refused(where, f"a name has more than {_MOST_NAME} characters")
                yield info
                # tarfile would keep them all in memory.
                archive.members.clear()  # type: ignore[attr-defined]
                archive.pax_headers = {}
                limited.begin_member()
    except _DAMAGE as error:
        what = f"not a readable tar archive ({type(error).__name__}: {str(error)[:80]})"
        raise BusbarError(what, where=where, hint="check that the file is complete") from error


def is_archive(path: Path) -> bool:
    """Return whether the file is a tar archive; raise ``BusbarError`` if it exceeds a limit."""
    with path.open("rb") as file, closing(_decompressed(file)) as stream:
        return _is_tar(stream, str(path))


def _is_tar(stream: BinaryIO, where: str = "") -> bool:
    try:
        limited = _Limited(stream, where, time.monotonic() + _SECONDS)
        return tarfile.TarFile(fileobj=cast(BinaryIO, limited)).next() is not None
    except _DAMAGE:
        return False


def _decompressed(stream: BinaryIO) -> BinaryIO:
    start = stream.read(6)
    stream.seek(0)
    for magic, opened in _COMPRESSED:
        if start.startswith(magic):
            return cast(BinaryIO, opened(stream, "rb"))
    return stream


class Part(io.RawIOBase):
    """A part of a file, which is read where it lies by ``read_at(length, position)``."""

    def __init__(self, read_at: Callable[[int, int], bytes], start: int, size: int) -> None:
        self._read_at, self._start, self._size, self._at = read_at, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        length = max(min(len(buffer), self._size - self._at), 0)
        data = self._read_at(length, self._start + self._at) if length else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def kind_of(member: tarfile.TarInfo) -> str:
    """Return ``file``, ``directory``, ``link`` (symbolic), ``hard`` (link) or ``special``."""
    if member.issparse():
        return "special"  # its content is not in one piece
    if member.isreg():
        return "file"
    kinds = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard"}
    return kinds.get(member.type, "special")
