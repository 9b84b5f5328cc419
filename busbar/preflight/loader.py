# SPDX-License-Identifier: MIT
"""Which library a program gets inside a container, by the rules of ld.so(8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from busbar.preflight import elf
from busbar.preflight.files import Files

_DEFAULT = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
_MAX_LINKS = 40  # as the kernel


@dataclass(frozen=True)
class Mount:
    """A directory or file of the host that the container sees at ``target``."""

    target: PurePosixPath
    source: PurePosixPath
    origin: str


@dataclass(frozen=True)
class Found:
    """A file that the container sees."""

    path: PurePosixPath
    """Without links, in the container."""
    local: Path
    origin: str


class View:
    """The file system of a container: an image with parts of the host mounted over it."""

    def __init__(
        self, image: Files, host: Files, mounts: Sequence[Mount], library_path: Sequence[str]
    ) -> None:
        self.image = image
        self.library_path = tuple(library_path)
        self._host = host
        self._mounts = sorted(mounts, key=lambda mount: len(mount.target.parts), reverse=True)

    def _place(self, path: PurePosixPath) -> tuple[Files, PurePosixPath, str]:
        for mount in self._mounts:
            if path == mount.target or mount.target in path.parents:
                return self._host, mount.source / path.relative_to(mount.target), mount.origin
        return self.image, path, "image"

    def find(self, path: PurePosixPath) -> Found | None:
        """The file or directory at ``path``; links lead where they lead in the container."""
        for _ in range(_MAX_LINKS):
            link = self._first_link(path)
            if link is None:
                break
            path = link
        else:
            return None
        files, inside, origin = self._place(path)
        return Found(path, files.local(inside), origin) if files.kind(inside) == "file" else None

    def _first_link(self, path: PurePosixPath) -> PurePosixPath | None:
        """The path with its first symbolic link replaced; None where it has none."""
        for length in range(2, len(path.parts) + 1):
            prefix = PurePosixPath(*path.parts[:length])
            files, inside, _ = self._place(prefix)
            if (target := files.link(inside)) is not None:
                return _normal(prefix.parent / target).joinpath(*path.parts[length:])
        return None

    def names(self, directory: PurePosixPath) -> list[str]:
        """The entries of a directory, links followed; none where there is none."""
        for _ in range(_MAX_LINKS):
            link = self._first_link(directory)
            if link is None:
                break
            directory = link
        files, inside, _ = self._place(directory)
        found = set(files.names(inside))
        found.update(m.target.name for m in self._mounts if m.target.parent == directory)
        return sorted(found)

    def text(self, path: str) -> str:
        """A text file; empty where there is none."""
        found = self.find(PurePosixPath(path))
        return found.local.read_text(errors="replace") if found else ""

    def directories(self) -> list[PurePosixPath]:
        """Where every program looks: LD_LIBRARY_PATH, /etc/ld.so.conf, the defaults."""
        places = (*self.library_path, *self._configured("/etc/ld.so.conf"), *_DEFAULT)
        return [PurePosixPath(place) for place in dict.fromkeys(places)]

    def _configured(self, file: str) -> list[str]:
        found: list[str] = []
        for line in self.text(file).splitlines():
            words = line.partition("#")[0].split()
            if words[:1] == ["include"]:
                for pattern in words[1:]:
                    parent = PurePosixPath(file).parent / PurePosixPath(pattern).parent
                    for name in self.names(parent):
                        if fnmatch(name, PurePosixPath(pattern).name):
                            found += self._configured(str(parent / name))
            else:
                found += words
        return found

    def search(self, name: str, first: Iterable[PurePosixPath] = ()) -> Found | None:
        """A library by its file name, as ``dlopen`` without a path looks for it."""
        for directory in (*first, *self.directories()):
            if found := self.find(directory / name):
                return found
        return None

    def matching(self, pattern: str) -> list[Found]:
        """Every library in the loader's directories whose whole name matches."""
        expression = re.compile(pattern)
        found = []
        for directory in self.directories():
            for name in self.names(directory):
                if expression.fullmatch(name) and (file := self.find(directory / name)):
                    found.append(file)
        return found

    def resolve(self, root: Found) -> dict[str, Found | None]:
        """Every library that a program needs, by name, in the order of loading; None: missing."""
        found: dict[str, Found | None] = {}
        queue: list[tuple[Found, tuple[str, ...]]] = [(root, ())]
        while queue:
            user, inherited = queue.pop(0)
            facts = elf.read(user.local)
            if facts is None:
                continue
            # A DT_RPATH holds for what the library loads too; a DT_RUNPATH switches it off.
            rpath = () if facts.runpath else (*_expand(facts.rpath, user.path), *inherited)
            for name in facts.needed:
                if name in found or name.startswith(("ld-linux", "linux-vdso")):
                    continue
                found[name] = self._needed(name, rpath, _expand(facts.runpath, user.path))
                if library := found[name]:
                    queue.append((library, rpath))
        return found

    def faults(self, root: Found) -> list[str]:
        """Why the loader refuses a file: libraries that are missing, or lack what it needs."""
        found = self.resolve(root)
        missing = [f"{name} is missing" for name, library in found.items() if library is None]
        return [*missing, *version_faults({root.path.name: root} | found)]

    def _needed(self, name: str, rpath: Sequence[str], runpath: Sequence[str]) -> Found | None:
        if "/" in name:
            return self.find(PurePosixPath(name))
        common = [str(directory) for directory in self.directories()]
        split = len(self.library_path)
        for directory in (*rpath, *common[:split], *runpath, *common[split:]):
            if found := self.find(_normal(PurePosixPath(directory) / name)):
                return found
        return None


def version_faults(libraries: Mapping[str, Found | None]) -> list[str]:
    """What the loader refuses of ``libraries``: damaged files, symbol versions that none has."""
    faults = []
    for user in filter(None, libraries.values()):
        facts = elf.read(user.local)
        if facts is None:
            faults.append(f"{user.path} ({user.origin}) is no library that can be read")
            continue
        for name, version in sorted(facts.versions):
            library = libraries.get(name)
            offered = elf.read(library.local) if library else None
            if library and offered and offered.defines and version not in offered.defines:
                faults.append(
                    f"{user.path.name} ({user.origin}) needs {version}, which {library.path}"
                    f" ({library.origin}) does not have"
                )
    return faults


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return PurePosixPath("/", *parts)


def _expand(directories: Sequence[str], user: PurePosixPath) -> tuple[str, ...]:
    origin = str(user.parent)
    return tuple(d.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for d in directories)
