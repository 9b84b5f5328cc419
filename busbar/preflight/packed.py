# SPDX-License-Identifier: MIT
"""Read the files of a packed image: a SIF, or the tar archive that a runtime exports."""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from busbar.errors import BusbarError
from busbar.preflight.confined import Unprivileged
from busbar.preflight.files import LARGEST, ROOT, Directory, Files, not_readable
from busbar.preflight.tarball import MOST_MEMBERS, Part, is_archive, kind_of, members

_PAGE = 4096  # a SIF aligns its file system to this
_SQUASHFS = b"hsqs"
_SEARCHED_BYTES = 16 * 2**20
_MOST_EXTRACTED = 4 * LARGEST
_LISTED = re.compile(
    r"(?P<type>[-dlbcps])\S+\s+\d+/\d+\s+(?P<size>\d+)(?:,\s*\d+)?\s+\S+\s+\S+\s+"
    r"squashfs-root(?P<path>/.*)"
)
_TYPES = {"-": "file", "d": "directory", "l": "link"}


class _Tree:
    """The entries of an image by path."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.kinds: dict[str, str] = {"/": "directory"}
        self.links: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}

    def add(self, path: str, kind: str, target: str) -> None:
        if len(self.kinds) > MOST_MEMBERS:
            raise BusbarError(f"has more than {MOST_MEMBERS:,} files", where=self.where)
        if path not in self.kinds:
            parent, _, name = path.rpartition("/")
            self._names.setdefault(parent or "/", []).append(name)
        self.kinds[path] = kind
        self.links.pop(path, None)
        if kind == "link":
            self.links[path] = target

    def link(self, path: PurePosixPath) -> str | None:
        return self.links.get(str(path))

    def kind(self, path: PurePosixPath) -> str:
        return self.kinds.get(str(path), "")

    def names(self, path: PurePosixPath) -> list[str]:
        return self._names.get(str(path), []) if self.kind(path) == "directory" else []


class Sif(_Tree):
    """The squashfs partition of a SIF; a file is extracted when it is first read."""

    def __init__(self, image: Path) -> None:
        super().__init__(str(image))
        self._tool = Unprivileged(image, "unsquashfs")
        self._offset = str(_offset(image))
        self._scratch = tempfile.mkdtemp(prefix="busbar-preflight-")
        weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self._sizes: dict[str, int] = {}
        self._extracted: dict[str, Files] = {}
        for line in self._tool.lines("-lln", "-offset", self._offset, self._tool.file):
            if entry := _LISTED.fullmatch(line):
                self._take(entry)

    def _take(self, entry: re.Match[str]) -> None:
        path, target = entry["path"], ""
        kind = _TYPES.get(entry["type"], "special")
        if kind == "link":
            path, _, target = path.partition(" -> ")
        # Old releases of unsquashfs write through a link that has the name of a directory.
        if path in self.kinds or not {".", "..", ""}.isdisjoint(path.split("/")[1:]):
            raise BusbarError(
                f"has two entries {path!r}, or one that leads out of its directory",
                where=self.where,
                hint="do not use this image",
            )
        self.add(path, kind, target)
        if kind == "file":
            self._sizes[path] = int(entry["size"])

    def open(self, path: PurePosixPath) -> io.BufferedReader:
        name = str(path)
        size = self._sizes.get(name, LARGEST + 1)
        if size > LARGEST:
            raise not_readable(f"{self.where}: {path}")
        if name not in self._extracted:
            if sum(self._sizes[each] for each in self._extracted) + size > _MOST_EXTRACTED:
                raise BusbarError(
                    f"needs more than {_MOST_EXTRACTED >> 30} GiB of libraries to be read",
                    where=self.where,
                )
            directory = tempfile.mkdtemp(dir=self._scratch)
            escaped = re.sub(r"[\\*?\[\]]", r"\\\g<0>", name.removeprefix("/"))
            options = ("-no-xattrs", "-offset", self._offset, "-dest", "out", self._tool.file)
            self._tool.run(Path(directory), *options, escaped)
            self._extracted[name] = Directory(Path(directory, "out"))
        return self._extracted[name].open(path)


class Archive(_Tree):
    """The archive of a container's file system; files are read where they lie in it."""

    def __init__(self, archive: Path, image: str) -> None:
        super().__init__(image)
        self._stream = archive.open("rb")
        weakref.finalize(self, self._stream.close)
        self._places: dict[str, tuple[int, int]] = {}
        for member in members(archive, image):
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise BusbarError(
                    f"a member leads out of the image: {member.name[:80]!r}", where=image
                )
            path = "/" + "/".join(parts)
            if path == "/":
                continue
            kind, place = kind_of(member), (member.offset_data, member.size)
            if kind == "hard":
                target = "/" + member.linkname.removeprefix("./").strip("/")
                kind, place = self.kinds.get(target, "special"), self._places.get(target, (0, 0))
                kind = "file" if kind == "file" else "special"
            self._add_parents(parts)
            self.add(path, kind, member.linkname)
            if kind == "file":
                self._places[path] = place

    def _add_parents(self, parts: Sequence[str]) -> None:
        """Add the directories above a member that are no members themselves."""
        for length in range(len(parts) - 1, 0, -1):
            path = "/" + "/".join(parts[:length])
            if path in self.kinds:
                return
            self.add(path, "directory", "")

    def open(self, path: PurePosixPath) -> io.BufferedReader:
        start, size = self._places.get(str(path), (0, LARGEST + 1))
        if self.kind(path) != "file" or size > LARGEST:
            raise not_readable(f"{self.where}: {path}")
        return io.BufferedReader(Part(partial(os.pread, self._stream.fileno()), start, size))


def _offset(image: Path) -> int:
    with image.open("rb") as stream:
        for offset in range(0, _SEARCHED_BYTES, _PAGE):
            stream.seek(offset)
            if stream.read(4) == _SQUASHFS:
                return offset
    raise BusbarError(
        "not a SIF with a squashfs partition", where=str(image), hint="give a SIF or a sandbox"
    )


def open_image(path: Path) -> Files:
    """Open a sandbox directory or a SIF; raise ``BusbarError`` for anything else."""
    if path.is_dir():
        files = Directory(path)
        if files.kind(ROOT / "oci-layout"):
            raise _oci_error(path, f"oci:{path}")
        kinds = [files.kind(ROOT / name) for name in ("usr", "lib", "bin", "opt")]
        if "directory" not in kinds:
            raise BusbarError(
                "not a root file system", where=str(path), hint="give a SIF or a sandbox"
            )
        return files
    if not path.is_file():
        raise BusbarError(
            "no such file or directory",
            where=str(path),
            hint="give a SIF or a sandbox; to convert an image of Docker to a SIF:"
            " docker save NAME -o image.tar && apptainer build image.sif docker-archive:image.tar",
        )
    if kind := archive_kind(path):
        raise _oci_error(path, f"{kind}:{path}")
    return Sif(path)


def archive_kind(path: Path) -> str:
    """Return ``oci-archive`` or ``docker-archive``; empty for any other file."""
    if not is_archive(path):
        return ""
    names = {member.name for member in members(path, str(path)) if "/" not in member.name}
    kinds = {"oci-layout": "oci-archive", "manifest.json": "docker-archive"}
    return next((kind for name, kind in kinds.items() if name in names), "")


def _oci_error(path: Path, source: str) -> BusbarError:
    return BusbarError(
        "is an OCI image; preflight reads a SIF or a sandbox",
        where=str(path),
        hint=f"convert it: apptainer build image.sif {source}",
    )
