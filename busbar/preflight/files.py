# SPDX-License-Identifier: MIT
"""Read the files of an untrusted image, a sandbox directory or a SIF, and of a host.

Nothing here follows a symbolic link: :class:`busbar.preflight.loader.View` resolves links inside
the root. Only regular files are opened.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Protocol

from busbar.errors import file_error
from busbar.parse import tables
from busbar.parse.tables import load_yaml

ROOT = PurePosixPath("/")
TABLES = load_yaml(Path(__file__).with_name("tables.yaml"))
refused = partial(tables.refused, Path(__file__).with_name("refusals"))
"""Return an error of ``refusals.yaml``."""
LARGEST = 4 * 2**30
"""Bytes of the largest file that is opened; the largest communication libraries have one GiB."""
_MOST_NAMES = 200_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Files(Protocol):
    """A root file system; paths are absolute, as programs inside see them."""

    def link(self, path: PurePosixPath) -> str | None:
        """Return the target of a symbolic link; None for anything else."""

    def kind(self, path: PurePosixPath) -> str:
        """Return ``file``, ``directory``, ``link``, ``special``, or empty if missing."""

    def names(self, path: PurePosixPath) -> list[str]:
        """Return the entries of a directory; empty for anything else."""

    def open(self, path: PurePosixPath) -> BufferedReader:
        """Open a regular file; raise ``BusbarError`` for anything else."""


class Directory:
    """A root file system in a directory.

    Each component of a path is opened by itself without following links, so no link leads out,
    even one that is made while the directory is read.
    """

    def __init__(self, root: Path) -> None:
        self._where = root
        with file_error("cannot be read", root):
            self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._root)
        self._entries: dict[PurePosixPath, tuple[str, str]] = {}

    @contextmanager
    def _parent(self, path: PurePosixPath) -> Iterator[tuple[int, str]]:
        """Open the directory that contains ``path``; yield it and the name in it."""
        at = os.dup(self._root)
        try:
            for part in path.parts[1:-1]:
                below = os.open(part, _STEP, dir_fd=at)
                os.close(at)
                at = below
            yield at, path.name or "."
        finally:
            os.close(at)

    def _entry(self, path: PurePosixPath) -> tuple[str, str]:
        """Return the kind of an entry, and the target of a link."""
        if path not in self._entries:
            try:
                with self._parent(path) as (at, name):
                    mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
                    target = os.readlink(name, dir_fd=at) if stat.S_ISLNK(mode) else ""
                self._entries[path] = _kind(mode), target
            except (OSError, ValueError):
                # Missing, or unreadable: the loader runs as the same user. Or a name that no
                # file can have: too long, or with a null character.
                self._entries[path] = "", ""
        return self._entries[path]

    def link(self, path: PurePosixPath) -> str | None:
        kind, target = self._entry(path)
        return target if kind == "link" else None

    def kind(self, path: PurePosixPath) -> str:
        return self._entry(path)[0]

    def names(self, path: PurePosixPath) -> list[str]:
        if self.kind(path) != "directory":
            return []
        try:
            with self._parent(path) as (at, name):
                directory = os.open(name, _READ | os.O_DIRECTORY, dir_fd=at)
            try:
                names = []
                with os.scandir(directory) as entries:
                    for entry in entries:
                        names.append(entry.name)
                        if len(names) > _MOST_NAMES:
                            what = {"path": path, "most": _MOST_NAMES}
                            raise refused("too-many-entries", self._where, **what)
            finally:
                os.close(directory)
        except OSError:  # not readable, so nothing in it can be loaded
            return []
        return sorted(names)

    def open(self, path: PurePosixPath) -> BufferedReader:
        where = f"{self._where}: {path}"
        # A device must not even be opened: that alone can have an effect.
        if self.kind(path) != "file":
            raise refused("not-a-file", where)
        with file_error("cannot be read", where), self._parent(path) as (at, name):
            stream = os.fdopen(os.open(name, _READ, dir_fd=at), "rb")
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            stream.close()
            raise refused("not-readable", where, most=LARGEST >> 30)
        return stream


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "special")
