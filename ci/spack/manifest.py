# SPDX-License-Identifier: MIT
"""Read a `spack.yaml` with the configuration scopes that it includes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from busbar import data
from busbar.errors import BusbarError
from busbar.site import systems
from busbar.site.stacks import provide
from busbar.site.yamlfile import Document
from busbar.spack import FILE

_FAMILIES = "site/_families"
_KINDS = {dict: "a mapping (key: value)", list: "a list"}
_Kind = TypeVar("_Kind", dict[str, Any], list[Any])


@dataclass(frozen=True)
class Manifest:
    """The specs and configuration of one environment."""

    path: Path
    scopes: tuple[Path, ...]
    """Files and directories that it includes, in order of precedence."""
    hides_machine: bool
    """``include::``: the configuration of machine and user does not affect the lock."""
    variants: tuple[str, ...]
    """Those that are preferred for all packages: the architecture of the GPUs."""
    files: Mapping[Path, Any]
    """What is in the manifest and all files of its scopes, but for the scope of the machine."""
    repositories: Mapping[str, Path]
    """The directories of recipes that are part of this repository, by namespace, in order."""
    target: str
    """The target that is preferred for all packages; empty if none is."""

    @property
    def lock(self) -> Path:
        """The path of its lock."""
        return self.path.with_name(FILE)

    @property
    def root(self) -> Path:
        """The repository: Busbar's for an environment in a directory of its own."""
        above = self.path.resolve().parents
        return next((d for d in above if (d / _FAMILIES).is_dir()), data.SITES.parent)

    @property
    def system(self) -> Path | None:
        """The scope of the operating system that its lock is for; None if it includes none."""
        return next(
            (path for path in self.scopes if path.parent.name == systems.SCOPES.name), None
        )


def load(path: Path) -> Manifest:
    """Read a manifest and its scopes; raise ``BusbarError`` for an invalid file.

    That of a shared environment is first written as the table has it.
    """
    provide(path.parent)
    read = cache(lambda file: Document(file).data)
    top = read(path)
    body = top.get("spack")
    if not isinstance(body, dict):
        hint = "see site/_stacks/host/spack.yaml"
        raise BusbarError("has no `spack:`", where=str(path), hint=hint)
    # `include::` replaces instead of adding; YAML reads it as the key "include:".
    hides = "include:" in body
    entries = _part(body, "include:" if hides else "include", list, str(path))
    scopes = tuple(_scopes(path, entries, read))
    files = {path.resolve(): top} | {file: read(file) for s in scopes for file in _files(s, read)}
    sections = [(_plain(each.get("spack", each)), file) for file, each in files.items()]
    return Manifest(
        path=path,
        scopes=scopes,
        hides_machine=hides,
        variants=tuple(_for_all(sections, "variants")),
        files=files,
        repositories=_repositories(sections),
        target=next(_for_all(sections, "target"), ""),
    )


def _part(section: Mapping[str, Any], key: str, kind: type[_Kind], where: str) -> _Kind:
    """Return what is under a key; raise ``BusbarError`` unless it is missing or of that kind."""
    value = section.get(key, kind())
    if isinstance(value, kind):
        return value
    what = f"must be {_KINDS[kind]}"
    raise BusbarError(what, where=f"{where}: {key}", hint="correct or remove it")


def _plain(value: Any) -> Any:
    """Return a section without the colons of keys that replace what lower scopes have."""
    if isinstance(value, dict):
        return {str(key).rstrip(":"): _plain(each) for key, each in value.items()}
    return value


def _scopes(
    file: Path, entries: list[Any], read: Callable[[Path], dict[str, Any]]
) -> Iterator[Path]:
    """Yield the scopes that a file includes, and those that they include themselves."""
    for entry in entries:
        optional = isinstance(entry, dict) and ("when" in entry or entry.get("optional") is True)
        name = entry.get("path") if isinstance(entry, dict) else entry
        if not isinstance(name, str):
            what, hint = f"includes {entry!r}, which Busbar cannot read", "include it by its path"
            raise BusbarError(what, where=str(file), hint=hint)
        scope = (file.parent / name).resolve()
        if scope.exists():
            yield scope
            for each in _files(scope, read):
                inner = _part(_plain(read(each)), "include", list, str(each))
                yield from _scopes(each, inner, read)
        elif not optional:
            what = f"includes {name}, which does not exist"
            raise BusbarError(what, where=str(file), hint="correct the path")


def _files(scope: Path, read: Callable[[Path], dict[str, Any]]) -> list[Path]:
    """Return the files of a scope; those of a directory have the names of their sections."""
    found = sorted(scope.glob("*.yaml"))
    return [x for x in found if x.stem in _plain(read(x))] if scope.is_dir() else [scope]


def _repositories(sections: list[tuple[dict[str, Any], Path]]) -> dict[str, Path]:
    return {
        name: (origin.parent / place).resolve()
        for section, origin in sections
        for name, place in _part(section, "repos", dict, str(origin)).items()
        if isinstance(place, str)
    }


def _for_all(sections: list[tuple[dict[str, Any], Path]], key: str) -> Iterator[str]:
    """Yield what the scopes prefer for all packages, the first scope first."""
    for section, origin in sections:
        packages = _part(section, "packages", dict, str(origin))
        preferred = _part(packages, "all", dict, f"{origin}: packages")
        yield from map(str, _part(preferred, key, list, f"{origin}: packages.all"))
