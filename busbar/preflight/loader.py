# SPDX-License-Identifier: MIT
"""Resolve the libraries of a program inside a container, by the rules of ld.so(8)."""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import PurePosixPath

from busbar.preflight import elf
from busbar.preflight.files import ROOT, TABLES, Files, refused

_MAX_LINKS = 40  # the limit of the kernel
_MAX_STEPS = 500
_MAX_LIBRARIES = 2000
_MAX_DIRECTORIES = 256
_MAX_INCLUDES = 256
_MOST_TEXT = 2**20


@dataclass(frozen=True)
class Mount:
    """A directory or file of the host that the container sees at ``target``."""

    target: PurePosixPath
    source: PurePosixPath
    origin: str


@dataclass(frozen=True)
class ContainerFile:
    """A place in the file system that the container sees."""

    path: PurePosixPath
    """In the container, with links resolved."""
    files: Files
    """The root file system that has it."""
    inside: PurePosixPath
    """Its path there."""
    origin: str
    """``image``, ``injected``, ``driver`` or ``host``."""

    @property
    def kind(self) -> str:
        """``file``, ``directory``, ``special``, or empty if it is missing."""
        return self.files.kind(self.inside)

    def open(self) -> BufferedReader:
        """Open it for reading."""
        return self.files.open(self.inside)


Libraries = Mapping[str, ContainerFile | None]
"""What a program loads, by name in load order; None if missing."""


class View:
    """The file system of a container: an image with parts of the host mounted over it."""

    def __init__(
        self, image: Files, host: Files, mounts: Sequence[Mount], library_path: Sequence[str]
    ) -> None:
        self._image = image
        self.library_path = tuple(library_path)
        self._host = host
        self._mounts = sorted(mounts, key=lambda mount: len(mount.target.parts), reverse=True)

    @classmethod
    def of(cls, files: Files) -> View:
        """Return the view of one root file system by itself."""
        return cls(files, files, (), ())

    def _place(self, path: PurePosixPath) -> tuple[Files, PurePosixPath, str]:
        for mount in self._mounts:
            if path == mount.target or mount.target in path.parents:
                return self._host, mount.source / path.relative_to(mount.target), mount.origin
        return self._image, path, "image"

    def resolved(self, path: PurePosixPath) -> PurePosixPath | None:
        """Return ``path`` without links, resolved inside the container as the kernel does.

        None if there are too many links or steps. A relative path starts at the root.
        """
        at, steps, links = ROOT, 0, 0
        remaining = list(reversed(path.parts))
        while remaining:
            part = remaining.pop()
            steps += 1
            if steps > _MAX_STEPS:
                return None
            if part in ("/", "//"):
                at = ROOT
            elif part == "..":
                at = at.parent
            else:
                files, inside, _ = self._place(at / part)
                target = files.link(inside)
                if target is None:
                    at /= part
                    continue
                links += 1
                if links > _MAX_LINKS:
                    return None
                remaining += reversed(PurePosixPath(target).parts)
        return at

    def _at(self, path: PurePosixPath) -> ContainerFile | None:
        """Return what is at ``path``, if anything, with links resolved."""
        found = self.resolved(path)
        return ContainerFile(found, *self._place(found)) if found else None

    def find(self, path: PurePosixPath) -> ContainerFile | None:
        """Return the regular file at ``path``, with links resolved; None if there is none."""
        found = self._at(path)
        return found if found and found.kind == "file" else None

    def kind(self, path: PurePosixPath) -> str:
        """Return ``file``, ``directory``, ``special`` or empty, with links followed."""
        found = self._at(path)
        return found.kind if found else ""

    def ucx_modules(
        self, core: ContainerFile, pattern: str
    ) -> list[tuple[str, ContainerFile | None]]:
        """Return the modules beside UCX whose whole name matches ``pattern``."""
        directory = core.path.parent / "ucx"
        names = [name for name in self.names(directory) if re.fullmatch(pattern, name)]
        return [(name, self.find(directory / name)) for name in names]

    def link(self, path: PurePosixPath) -> bool:
        """Return whether ``path`` itself is a link; the directories above it are followed."""
        parent = self.resolved(path.parent)
        if parent is None:
            return False
        files, inside, _ = self._place(parent / path.name)
        return files.link(inside) is not None

    def names(self, directory: PurePosixPath) -> list[str]:
        """Return the entries of a directory, with links followed; empty if it is missing."""
        if not (found := self._at(directory)):
            return []
        mounted = {m.target.name for m in self._mounts if m.target.parent == found.path}
        return sorted(mounted.union(found.files.names(found.inside)))

    def text(self, path: PurePosixPath) -> str:
        """Read a text file; return an empty text if it is missing.

        Raises ``BusbarError`` for anything but a regular file of at most 1 MiB.
        """
        if not self.kind(path):
            return ""
        if (file := self.find(path)) is None:
            raise refused("not-a-file", path)
        with file.open() as stream:
            data = stream.read(_MOST_TEXT + 1)
        if len(data) > _MOST_TEXT:
            raise refused("too-much-text", path)
        return data.decode(errors="replace")

    @cached_property
    def directories(self) -> tuple[PurePosixPath, ...]:
        """The search path: LD_LIBRARY_PATH, /etc/ld.so.conf, the defaults."""
        places = dict.fromkeys((*self.library_path, *configured(self), *TABLES["loader"]))
        if len(places) > _MAX_DIRECTORIES:
            where = "LD_LIBRARY_PATH and /etc/ld.so.conf of the image"
            raise refused("too-many-directories", where, most=_MAX_DIRECTORIES)
        # The loader takes a relative directory from wherever the program starts.
        return tuple(PurePosixPath(place) for place in places if place.startswith("/"))

    def search(self, name: str) -> ContainerFile | None:
        """Search a library by file name, as ``dlopen`` without a path does."""
        return self._first(self.directories, name)

    def _first(self, directories: Iterable[PurePosixPath], name: str) -> ContainerFile | None:
        return next(filter(None, (self.find(each / name) for each in directories)), None)

    def matching(self, pattern: str) -> list[ContainerFile]:
        """Return every library on the search path whose whole name matches ``pattern``."""
        expression = re.compile(pattern)
        return [
            library
            for directory in self.directories
            for name in self.names(directory)
            if expression.fullmatch(name) and (library := self.find(directory / name))
        ]

    def resolve(self, root: ContainerFile) -> dict[str, ContainerFile | None]:
        """Return the libraries that a program loads, by name in load order; None if missing."""
        libraries: dict[str, ContainerFile | None] = {}
        queue: deque[tuple[ContainerFile, tuple[str, ...]]] = deque([(root, ())])
        while queue:
            user, inherited = queue.popleft()
            facts = elf.read(user)
            if facts is None:
                continue
            # DT_RPATH also applies to the libraries of a library; DT_RUNPATH disables it.
            rpath = () if facts.runpath else (*_expand(facts.rpath, user.path), *inherited)
            for name in facts.needed:
                if name in libraries or name.startswith(("ld-linux", "linux-vdso")):
                    continue
                library = self._needed(name, rpath, _expand(facts.runpath, user.path))
                libraries[name] = library
                if len(libraries) > _MAX_LIBRARIES:
                    raise refused("too-many-libraries", root.path, most=_MAX_LIBRARIES)
                if library:
                    queue.append((library, rpath))
        return libraries

    def linked(self, user: ContainerFile, name: str) -> ContainerFile | None:
        """Return the library in the directories that its user names: the library of the link."""
        facts = elf.read(user)
        own = _expand((*facts.rpath, *facts.runpath), user.path) if facts else ()
        found = (self.find(PurePosixPath(directory) / name) for directory in own)
        return next(filter(None, found), None)

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
        common = self.directories
        split = len({d for d in self.library_path if d.startswith("/")})
        own, others = map(PurePosixPath, rpath), map(PurePosixPath, runpath)
        return self._first((*own, *common[:split], *others, *common[split:]), name)


def configured(view: View) -> list[str]:
    """Return the directories of /etc/ld.so.conf and of what it includes, each file once."""
    directories: dict[str, None] = {}
    read: set[PurePosixPath] = set()
    pending = [(PurePosixPath("/etc"), "include ld.so.conf")]  # the next line is the last one
    while pending:
        at, line = pending.pop()
        words = line.partition("#")[0].split()
        if words[:1] != ["include"]:
            directories |= dict.fromkeys(words)
        else:
            files = [file for word in words[1:] for file in _included(view, at / word)]
            new = [file for file in dict.fromkeys(files) if file not in read]
            read.update(new)
            lines = [(file.parent, text) for file in new for text in view.text(file).split("\n")]
            pending += reversed(lines)
        if len(read) > _MAX_INCLUDES or len(directories) > _MAX_DIRECTORIES:
            most = {"directories": _MAX_DIRECTORIES, "files": _MAX_INCLUDES}
            raise refused("too-many-includes", "/etc/ld.so.conf", **most)
    return list(directories)


def _included(view: View, pattern: PurePosixPath) -> list[PurePosixPath]:
    names = view.names(pattern.parent)
    return [pattern.parent / name for name in fnmatch.filter(names, pattern.name)]


def ucx_core(libraries: Libraries) -> ContainerFile | None:
    """Return the transport library of UCX; None if the program does not load it."""
    return next((f for n, f in libraries.items() if n.startswith("libuct.so") and f), None)


def version_faults(libraries: Libraries) -> list[str]:
    """Return the reasons why the loader refuses ``libraries``: damage, undefined versions."""
    faults = []
    for user in filter(None, libraries.values()):
        facts = elf.read(user)
        if facts is None:
            faults.append(f"{user.path} ({user.origin}) is not a readable library")
            continue
        for name, version in sorted(facts.versions):
            library = libraries.get(name)
            offered = elf.read(library) if library else None
            if library and offered and offered.defines and version not in offered.defines:
                faults.append(
                    f"{user.path.name} ({user.origin}) needs {version}, which {library.path}"
                    f" ({library.origin}) does not define"
                )
    return faults


def _expand(directories: Sequence[str], user: PurePosixPath) -> tuple[str, ...]:
    origin = str(user.parent)
    expanded = (d.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for d in directories)
    return tuple(directory for directory in expanded if directory.startswith("/"))
