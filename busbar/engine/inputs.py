# SPDX-License-Identifier: MIT
"""The inputs that a user names: files, pipes, directories; compressed, or no text at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import select
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeAlias, cast

from busbar.engine.documents import PICKLE
from busbar.errors import BusbarError
from busbar.parse.tables import beside, refused
from busbar.parse.text import Source

STDIN = "-"
MOST_FILES = 10_000
FIFO_SECONDS = 30
"""How long a named pipe may stay without a writer."""
HEAD_BYTES = 1 << 14
"""What is read of a file to tell what it is."""
BOMB_BYTES, BOMB_RATIO = 256 << 20, 900
"""A file that exceeds both limits is not a log: the text of logs shrinks to about a hundredth."""
_MOST_UNPACKED_BYTES, _MOST_HEADER_BYTES = 4 << 30, 16 << 20
_BINARY_SHARE = 0.05
_CONTROL = bytes(set(range(32)) - set(b"\0\t\n\r\b\f\v\x1b\x07")) + b"\x7f"


def _zstd() -> ModuleType | None:
    """Return the module of Python 3.14 that reads zstd, or the same one for older versions."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):  # zstd is then reported as a format that cannot be read
            return import_module(name)
    return None


_Text: TypeAlias = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile

_FORMATS = beside(__file__)["formats"]
_OUTPUT = "name the output of the job: what it printed"
_ZSTD = _zstd()
_OPENERS: tuple[tuple[bytes, Callable[[BinaryIO], _Text]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
    (b"\x5d\0\0", lzma.LZMAFile),
    *(((b"\x28\xb5\x2f\xfd", _ZSTD.ZstdFile),) if _ZSTD else ()),
)
_DAMAGE = (zlib.error, lzma.LZMAError, *((_ZSTD.ZstdError,) if _ZSTD else ()))


def named(name: Path, archives: ExitStack | None = None) -> Iterator[Source]:
    """Yield the inputs that a user names: ``-`` is standard input, a directory is its files.

    Archives stay open until ``archives`` is closed; without it they are not read.
    """
    if str(name) == STDIN:
        if sys.stdin.isatty():
            raise refused(__file__, "terminal", STDIN)
        yield Source("stdin", lambda: cast(BinaryIO, sys.stdin.buffer))
    elif name.is_dir():
        files = [
            Path(place, file)
            for place, folders, found in islice(os.walk(name), MOST_FILES)
            if not folders.sort()
            for file in sorted(found)[: MOST_FILES + 1]
            if not file.startswith(".") and Path(place, file).is_file()
        ]
        if not files or len(files) > MOST_FILES:
            raise refused(__file__, "many-files", name, count=len(files))
        yield from (Source(str(f), partial(_open, f), is_optional=True) for f in files)
    elif archives and name.is_file() and (members := list(_members(name, archives))):
        yield from members
    else:
        yield Source(str(name), lambda: _open(name))


class _Bounded(io.BufferedReader):
    """The tar archive in a file; a header that claims to be huge is not read."""

    def read(self, nbytes: int | None = -1, /) -> bytes:
        if nbytes is None or not 0 <= nbytes <= _MOST_HEADER_BYTES:
            raise tarfile.ReadError("a header is too large")
        return super().read(nbytes)


def _members(path: Path, archives: ExitStack) -> Iterator[Source]:
    """Yield the files in an archive, read in place; nothing for other files."""
    damage = tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, *_DAMAGE
    with suppress(*damage), ExitStack() as opened:  # a damaged archive is read as one file
        file: Any = opened.enter_context(path.open("rb"))
        head = text = file.read(HEAD_BYTES)
        file.seek(0)
        if opener := next((each for magic, each in _OPENERS if head.startswith(magic)), None):
            file = opened.enter_context(opener(file))
            text = file.read(tarfile.BLOCKSIZE)
            file.seek(0)
        files: Iterable[tuple[str, int, Callable[[], Any]]]
        if head.startswith(b"PK\x03\x04"):
            zipped = opened.enter_context(zipfile.ZipFile(file))
            listed = (each for each in zipped.infolist() if not each.is_dir())
            files = (
                (each.filename, each.file_size, partial(zipped.open, each)) for each in listed
            )
        elif text.startswith(b"ustar", 257):
            tar = opened.enter_context(tarfile.TarFile(fileobj=_Bounded(file)))
            members = (each for each in tar if each.isreg())
            files = ((each.name, each.size, partial(tar.extractfile, each)) for each in members)
        else:
            return
        archives.push(opened.pop_all())
        nbytes, most = 0, max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size)
        for number, (name, size, open_) in enumerate(files):
            nbytes += size
            if number >= MOST_FILES or nbytes > min(most, _MOST_UNPACKED_BYTES):
                raise refused(__file__, "many-members", path, most=MOST_FILES)
            yield Source(f"{path}:{name}", open_, is_optional=True)


def _open(path: Path) -> BinaryIO:
    """Open a file or a pipe; a named pipe without a writer is an error after a while."""
    mode = path.stat().st_mode
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise BusbarError("is a socket or a disk", where=str(path), hint="pass a log")
    # The pipe of `<(...)` has a writer already, however long that takes.
    if not stat.S_ISFIFO(mode) or path.parts[:2] in (("/", "dev"), ("/", "proc")):
        return path.open("rb")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(FIFO_SECONDS * 1000):
        os.close(descriptor)
        raise refused(__file__, "no-writer", path, seconds=FIFO_SECONDS)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


class _Packed:
    """The bytes of a compressed file, including the ones already read; counts them."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self.nbytes = 0
        self._head = head
        self._file = file

    def read(self, nbytes: int = -1, /) -> bytes:
        """Return at most ``nbytes``."""
        piece, self._head = self._head[:nbytes], self._head[nbytes:]
        piece = piece or self._file.read(nbytes)
        self.nbytes += len(piece)
        return piece


class Stream:
    """The text of an input, unpacked. It is read once, so that it can be a pipe."""

    def __init__(self, source: Source) -> None:
        self.damage = ""
        """Why a compressed file could not be read to its end; empty if it could."""
        self._name = source.name
        self._file = source.open()
        self._text: _Text | None = None
        self._nbytes = 0
        with ExitStack() as if_refused:
            if_refused.callback(self._file.close)
            head = self._file.read(HEAD_BYTES)
            self._packed = _Packed(head, self._file)
            if opener := next((each for magic, each in _OPENERS if head.startswith(magic)), None):
                self._text = opener(cast(BinaryIO, self._packed))
                head = self._unpack(HEAD_BYTES)
            if not head.startswith(PICKLE):
                _refuse(head, source.name, self._text is not None)
            if_refused.pop_all()
        self.head = self._ahead = head
        """The first bytes of the text, which `read` returns again."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def unread(self, text: bytes) -> None:
        """Let `read` return ``text`` again."""
        self._ahead = text + self._ahead

    def read(self, nbytes: int, /) -> bytes:
        """Return at most ``nbytes``; nothing at the end."""
        text, self._ahead = self._ahead[:nbytes], self._ahead[nbytes:]
        nbytes -= len(text)
        if not nbytes:
            return text
        return text + (self._file.read(nbytes) if self._text is None else self._unpack(nbytes))

    def _unpack(self, nbytes: int) -> bytes:
        """Return what can be unpacked, also of a file that was cut off."""
        pieces = []
        try:
            # `read` would lose what it has unpacked before the damage.
            while (
                self._text
                and nbytes > 0
                and not self.damage
                and (piece := self._text.read1(nbytes))
            ):
                pieces.append(piece)
                nbytes -= len(piece)
                self._nbytes += len(piece)
        except (EOFError, OSError, *_DAMAGE) as error:
            self.damage = str(error).rstrip(".")
        most = min(max(BOMB_BYTES, BOMB_RATIO * self._packed.nbytes), _MOST_UNPACKED_BYTES)
        if self._nbytes > most:
            what = f"{most >> 30} GiB" if most >> 30 else f"{BOMB_RATIO} times its size"
            raise refused(__file__, "bomb", self._name, what=what)
        return b"".join(pieces)


def _refuse(head: bytes, name: str, unpacked: bool) -> None:
    """Raise ``BusbarError`` if a file that begins with ``head`` is not text."""
    for form in _FORMATS:
        offset = form.get("offset", 0)
        if head.startswith(form["magic"].encode("latin-1"), offset):
            what = f"{'contains' if unpacked and offset else 'is'} {form['name']}"
            raise BusbarError(what, where=name, hint=form.get("hint", _OUTPUT).format(name))
    # NUL bytes are left by UTF-16 and by logs that were rotated while a job wrote.
    text = head.replace(b"\0", b"")
    control = len(text) - len(text.translate(None, _CONTROL))
    if control > _BINARY_SHARE * len(text):
        raise BusbarError("is a binary file", where=name, hint=_OUTPUT)
