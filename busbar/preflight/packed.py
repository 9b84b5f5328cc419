# SPDX-License-Identifier: MIT
"""Read the files of a packed image: a SIF, or the archive that a container runtime exports."""

from __future__ import annotations

import io
import os
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from busbar.preflight.confined import Unprivileged
from busbar.preflight.files import LARGEST, ROOT, Directory, Files, refused

_PAGE = 4096  # a SIF aligns its file system to this
_SQUASHFS = b"hsqs"
_SEARCHED_BYTES = 16 * 2**20
_MOST_EXTRACTED = 4 * LARGEST
_MOST_ENTRIES = 1_000_000
MOST_BYTES = 128 * 2**30
"""Of the archive that a runtime exports, and of a file in it."""
_LISTED = re.compile(
    r"(?P<type>[-dlbcps])\S+\s+\d+/\d+\s+(?P<size>\d+)(?:,\s*\d+)?\s+\S+\s+\S+\s+"
    r"squashfs-root(?P<path>/.*)"
)
_TYPES = {"-": "file", "d": "directory", "l": "link"}


class Sif:
    """The squashfs partition of a SIF; a file is extracted when it is first read."""

    def __init__(self, image: Path) -> None:
        self._where = str(image)
        self._tool = Unprivileged(image, "unsquashfs")
        self._offset = str(_offset(image))
        self._kinds = {"/": "directory"}
        self._names: dict[str, list[str]] = {}
        self._links: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._extracted: dict[str, int] = {}
        """Open files, which have no name any more."""
        for line in self._tool.lines("-lln", "-offset", self._offset, self._tool.file):
            if entry := _LISTED.fullmatch(line):
                self._add(entry)

    def _add(self, entry: re.Match[str]) -> None:
        path, kind = entry["path"], _TYPES.get(entry["type"], "special")
        if kind == "link":
            path, _, target = path.partition(" -> ")
            self._links[path] = target
        # Old releases of unsquashfs write through a link that has the name of a directory.
        if path in self._kinds or not {".", "..", ""}.isdisjoint(path.split("/")[1:]):
            raise refused("two-entries", self._where, path=path)
        if len(self._kinds) > _MOST_ENTRIES:
            raise refused("too-many-files", self._where, most=_MOST_ENTRIES)
        parent, _, name = path.rpartition("/")
        self._names.setdefault(parent or "/", []).append(name)
        self._kinds[path] = kind
        if kind == "file":
            self._sizes[path] = int(entry["size"])

    def link(self, path: PurePosixPath) -> str | None:
        return self._links.get(str(path))

    def kind(self, path: PurePosixPath) -> str:
        return self._kinds.get(str(path), "")

    def names(self, path: PurePosixPath) -> list[str]:
        return self._names.get(str(path), []) if self.kind(path) == "directory" else []

    def open(self, path: PurePosixPath) -> io.BufferedReader:
        name = str(path)
        size = self._sizes.get(name, LARGEST + 1)
        if size > LARGEST:
            raise refused("not-readable", f"{self._where}: {path}", most=LARGEST >> 30)
        if name not in self._extracted:
            if sum(self._sizes[each] for each in self._extracted) + size > _MOST_EXTRACTED:
                raise refused("too-much-to-read", self._where, most=_MOST_EXTRACTED >> 30)
            self._extracted[name] = self._extract(name)
        return open(f"/proc/self/fd/{self._extracted[name]}", "rb")

    def _extract(self, name: str) -> int:
        """Return an open file of the image; it is removed when the last one closes it."""
        escaped = re.sub(r"[\\*?\[\]]", r"\\\g<0>", name.removeprefix("/"))
        options = ("-no-xattrs", "-offset", self._offset, "-dest", "out", self._tool.file)
        with _scratch() as directory:
            self._tool.run(directory, *options, escaped)
            with Directory(directory / "out").open(PurePosixPath(name)) as stream:
                number = os.dup(stream.fileno())
        weakref.finalize(self, os.close, number)
        return number


@contextmanager
def unpacked(archive: Path, image: str) -> Iterator[Directory]:
    """Unpack the archive of a container's file system, as ``docker export`` writes it, for a time.

    GNU tar unpacks it: no name or link leads out of the new directory.
    """
    with _scratch() as root:
        tar, chmod = (Unprivileged(archive, tool, image) for tool in ("tar", "chmod"))
        plain = ("--no-same-owner", "--no-same-permissions", "--anchored", "--exclude=dev/*")
        tar.run(root, "--extract", f"--file={tar.file}", *plain, most=MOST_BYTES)
        # Modes of the image can hide files from this user, who is root in the container only.
        chmod.run(root, "-R", "u+rwX", ".")
        yield Directory(root)


@contextmanager
def _scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="busbar-preflight-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _offset(image: Path) -> int:
    with image.open("rb") as stream:
        for offset in range(0, _SEARCHED_BYTES, _PAGE):
            stream.seek(offset)
            if stream.read(4) == _SQUASHFS:
                return offset
    raise refused("no-sif", image, image=image)


def open_image(path: Path) -> Files:
    """Open a sandbox directory or a SIF; raise ``BusbarError`` for anything else."""
    if path.is_file():
        return Sif(path)
    if not path.is_dir():
        # Path keeps one slash of docker://.
        where = re.sub(r"^(?P<scheme>\w+:)/", r"\g<scheme>//", str(path))
        raise refused("no-image", where)
    files = Directory(path)
    if files.kind(ROOT / "oci-layout"):
        raise refused("oci-image", path, image=path)
    kinds = [files.kind(ROOT / name) for name in ("usr", "lib", "bin", "opt")]
    if "directory" not in kinds:
        raise refused("no-root", path)
    return files
