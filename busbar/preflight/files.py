# SPDX-License-Identifier: MIT
"""Access to the files of an image, a sandbox directory or a SIF, and of a host."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

from busbar.errors import BusbarError

_PAGE = 4096  # a SIF aligns its file system to this
_SQUASHFS = b"hsqs"
_SEARCHED_BYTES = 16 * 2**20


class Files(Protocol):
    """A root file system; paths are absolute, as programs inside see them."""

    def link(self, path: PurePosixPath) -> str | None:
        """Return the target of a symbolic link; None for anything else."""

    def kind(self, path: PurePosixPath) -> str:
        """Return ``file``, ``directory``, or empty if missing; do not follow links."""

    def names(self, path: PurePosixPath) -> list[str]:
        """Return the entries of a directory; empty for anything else."""

    def local(self, path: PurePosixPath) -> Path:
        """Return a local path with the content of the file."""

    def paths(self) -> Iterator[PurePosixPath]:
        """Yield every path except those in /proc, /sys and /dev."""


class Directory:
    """A root file system in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def local(self, path: PurePosixPath) -> Path:
        return self._root / path.relative_to("/")

    def link(self, path: PurePosixPath) -> str | None:
        local = self.local(path)
        return os.readlink(local) if local.is_symlink() else None

    def kind(self, path: PurePosixPath) -> str:
        local = self.local(path)
        try:
            if local.is_dir():
                return "directory"
            return "file" if local.exists() else ""
        except PermissionError:
            return ""  # the loader cannot read it either, as it runs as the same user

    def names(self, path: PurePosixPath) -> list[str]:
        local = self.local(path)
        try:
            return sorted(os.listdir(local)) if local.is_dir() else []
        except PermissionError:
            return []

    def paths(self) -> Iterator[PurePosixPath]:
        for directory, subdirectories, files in os.walk(self._root):
            at = PurePosixPath("/", Path(directory).relative_to(self._root).as_posix())
            if at == PurePosixPath("/"):
                subdirectories[:] = [d for d in subdirectories if d not in ("proc", "sys", "dev")]
            for name in (*files, *subdirectories):
                yield at / name


class Sif:
    """The squashfs partition of a SIF; a file is extracted when it is first read."""

    def __init__(self, image: Path) -> None:
        self._image = image
        self._offset = _offset(image)
        self._scratch = tempfile.TemporaryDirectory(prefix="busbar-preflight-")
        self._links: dict[PurePosixPath, str] = {}
        self._kinds: dict[PurePosixPath, str] = {PurePosixPath("/"): "directory"}
        self._children: dict[PurePosixPath, list[str]] = {}
        for line in self._unsquashfs("-lln").splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) != 6 or "squashfs-root/" not in fields[5]:
                continue
            name, _, target = fields[5].partition(" -> ")
            path = PurePosixPath("/" + name.removeprefix("squashfs-root/"))
            self._children.setdefault(path.parent, []).append(path.name)
            if fields[0].startswith("l"):
                self._links[path] = target
            else:
                self._kinds[path] = "directory" if fields[0].startswith("d") else "file"

    def _unsquashfs(self, *options: str) -> str:
        command = ["unsquashfs", *options[:1], "-offset", str(self._offset), *options[1:]]
        if options[0] == "-lln":
            command.append(str(self._image))
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError as error:
            raise BusbarError(
                "unsquashfs is needed to read a SIF",
                where=str(self._image),
                hint="install squashfs-tools, or give a sandbox directory",
            ) from error
        except subprocess.CalledProcessError as error:
            raise BusbarError(
                f"unsquashfs cannot read it ({error.stderr.strip().splitlines()[-1:]})",
                where=str(self._image),
                hint="check that the file is complete with apptainer sif list",
            ) from error
        return done.stdout

    def link(self, path: PurePosixPath) -> str | None:
        return self._links.get(path)

    def kind(self, path: PurePosixPath) -> str:
        return self._kinds.get(path, "")

    def names(self, path: PurePosixPath) -> list[str]:
        return self._children.get(path, [])

    def local(self, path: PurePosixPath) -> Path:
        target = Path(self._scratch.name) / path.relative_to("/")
        if not target.exists():
            escaped = re.sub(r"[\\*?\[\]]", r"\\\g<0>", str(path.relative_to("/")))
            self._unsquashfs(
                "-force", "-no-xattrs", "-dest", self._scratch.name, str(self._image), escaped
            )
        return target

    def paths(self) -> Iterator[PurePosixPath]:
        yield from self._kinds
        yield from self._links


def _offset(image: Path) -> int:
    with image.open("rb") as stream:
        for offset in range(0, _SEARCHED_BYTES, _PAGE):
            stream.seek(offset)
            if stream.read(4) == _SQUASHFS:
                return offset
    raise BusbarError(
        "not a SIF with a squashfs partition",
        where=str(image),
        hint="give a SIF or a sandbox",
    )


def open_image(path: Path) -> Files:
    """Open a sandbox directory or a SIF; raise ``BusbarError`` for anything else."""
    if path.is_dir():
        if (path / "oci-layout").exists():
            raise _oci_error(path, f"oci:{path}")
        if not any((path / name).is_dir() for name in ("usr", "lib", "bin", "opt")):
            raise BusbarError(
                "not a root file system", where=str(path), hint="give a SIF or a sandbox"
            )
        return Directory(path)
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
    if not tarfile.is_tarfile(path):
        return ""
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
    kinds = {"oci-layout": "oci-archive", "manifest.json": "docker-archive"}
    return next((kind for name, kind in kinds.items() if name in names), "")


def _oci_error(path: Path, source: str) -> BusbarError:
    return BusbarError(
        "is an OCI image; preflight reads a SIF or a sandbox",
        where=str(path),
        hint=f"convert it: apptainer build image.sif {source}",
    )
