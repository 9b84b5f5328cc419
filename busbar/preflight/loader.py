# SPDX-License-Identifier: MIT
"""Resolve the libraries of a program inside a container, by the rules of ld.so(8)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
_MAX_LINKS = 40  # the limit of the kernel


@dataclass(frozen=True)
class Mount:
    """A directory or file of the host that the container sees at ``target``."""

    target: PurePosixPath
    source: PurePosixPath
    origin: str


@dataclass(frozen=True)
class ContainerFile:
    """A file that the container sees."""

    path: PurePosixPath
    """In the container, with links resolved."""
    local: Path
    """The same file on this host, for reading."""
    origin: str
    """``image``, ``injected``, ``driver`` or ``host``."""


Libraries = Mapping[str, ContainerFile | None]
"""What a program loads, by name in load order; None if missing."""


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

    def find(self, path: PurePosixPath) -> ContainerFile | None:
        """Return the file at ``path``, with links resolved in the container; None if missing."""
        for _ in range(_MAX_LINKS):
            link = self._first_link(path)
            if link is None:
                break
            path = link
        else:
            return None
        files, inside, origin = self._place(path)
        if files.kind(inside) != "file":
            return None
        return ContainerFile(path, files.local(inside), origin)

    def _first_link(self, path: PurePosixPath) -> PurePosixPath | None:
        """Return the path with its first symbolic link replaced; None if it has none."""
        for length in range(2, len(path.parts) + 1):
            prefix = PurePosixPath(*path.parts[:length])
            files, inside, _ = self._place(prefix)
            if (target := files.link(inside)) is not None:
                return _normal(prefix.parent / target).joinpath(*path.parts[length:])
        return None

    def ucx_modules(
        self, core: ContainerFile, pattern: str
    ) -> list[tuple[str, ContainerFile | None]]:
        """Return the modules beside UCX whose whole name matches ``pattern``."""
        directory = core.path.parent / "ucx"
        names = [name for name in self.names(directory) if re.fullmatch(pattern, name)]
        return [(name, self.find(directory / name)) for name in names]

    def names(self, directory: PurePosixPath) -> list[str]:
        """Return the entries of a directory, with links followed; empty if it is missing."""
        for _ in range(_MAX_LINKS):
            link = self._first_link(directory)
            if link is None:
                break
            directory = link
        files, inside, _ = self._place(directory)
        mounted = {m.target.name for m in self._mounts if m.target.parent == directory}
        return sorted(mounted.union(files.names(inside)))

    def text(self, path: str) -> str:
        """Read a text file; return an empty text if it is missing."""
        file = self.find(PurePosixPath(path))
        return file.local.read_text(errors="replace") if file else ""

    def directories(self) -> list[PurePosixPath]:
        """Return the search path: LD_LIBRARY_PATH, /etc/ld.so.conf, the defaults."""
        places = (*self.library_path, *self._configured("/etc/ld.so.conf"), *_DEFAULT)
        return [PurePosixPath(place) for place in dict.fromkeys(places)]

    def _configured(self, file: str) -> list[str]:
        directories: list[str] = []
        for line in self.text(file).splitlines():
            words = line.partition("#")[0].split()
            if words[:1] == ["include"]:
                for pattern in words[1:]:
                    parent = PurePosixPath(file).parent / PurePosixPath(pattern).parent
                    for name in self.names(parent):
                        if fnmatch(name, PurePosixPath(pattern).name):
                            directories += self._configured(str(parent / name))
            else:
                directories += words
        return directories

    def search(self, name: str) -> ContainerFile | None:
        """Search a library by file name, as ``dlopen`` without a path does."""
        for directory in self.directories():
            if library := self.find(directory / name):
                return library
        return None

    def matching(self, pattern: str) -> list[ContainerFile]:
        """Return every library on the search path whose whole name matches ``pattern``."""
        expression = re.compile(pattern)
        return [
            library
            for directory in self.directories()
            for name in self.names(directory)
            if expression.fullmatch(name) and (library := self.find(directory / name))
        ]

    def resolve(self, root: ContainerFile) -> dict[str, ContainerFile | None]:
        """Return the libraries that a program loads, by name in load order; None if missing."""
        libraries: dict[str, ContainerFile | None] = {}
        queue: list[tuple[ContainerFile, tuple[str, ...]]] = [(root, ())]
        while queue:
            user, inherited = queue.pop(0)
            facts = elf.read(user.local)
            if facts is None:
                continue
            # DT_RPATH also applies to the libraries of a library; DT_RUNPATH disables it.
            rpath = () if facts.runpath else (*_expand(facts.rpath, user.path), *inherited)
            for name in facts.needed:
                if name in libraries or name.startswith(("ld-linux", "linux-vdso")):
                    continue
                library = self._needed(name, rpath, _expand(facts.runpath, user.path))
                libraries[name] = library
                if library:
                    queue.append((library, rpath))
        return libraries

    def faults(self, root: ContainerFile) -> list[str]:
        """Return the reasons why the loader refuses a file: missing libraries or versions."""
        libraries = self.resolve(root)
        missing = [f"{name} is missing" for name, library in libraries.items() if library is None]
        return [*missing, *version_faults({root.path.name: root} | libraries)]

    def _needed(
        self, name: str, rpath: Sequence[str], runpath: Sequence[str]
    ) -> ContainerFile | None:
        if "/" in name:
            return self.find(PurePosixPath(name))
        common = [str(directory) for directory in self.directories()]
        split = len(self.library_path)
        for directory in (*rpath, *common[:split], *runpath, *common[split:]):
            if library := self.find(_normal(PurePosixPath(directory) / name)):
                return library
        return None


def ucx_core(libraries: Libraries) -> ContainerFile | None:
    """Return the transport library of UCX; None if the program does not load it."""
    return next((f for n, f in libraries.items() if n.startswith("libuct.so") and f), None)


def version_faults(libraries: Libraries) -> list[str]:
    """Return the reasons why the loader refuses ``libraries``: damage, undefined versions."""
    faults = []
    for user in filter(None, libraries.values()):
        facts = elf.read(user.local)
        if facts is None:
            faults.append(f"{user.path} ({user.origin}) is not a readable library")
            continue
        for name, version in sorted(facts.versions):
            library = libraries.get(name)
            offered = elf.read(library.local) if library else None
            if library and offered and offered.defines and version not in offered.defines:
                faults.append(
                    f"{user.path.name} ({user.origin}) needs {version}, which {library.path}"
                    f" ({library.origin}) does not define"
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
