# SPDX-License-Identifier: MIT
"""Read a `spack.yaml` with the configuration scopes that it includes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from busbar import data
from busbar.errors import BusbarError
from busbar.site import systems
from busbar.site.yamlfile import load_yaml
from busbar.spack import FILE

# The scope that a machine adds; it is not part of the repository.
_MACHINE = "machine"
_FAMILIES = "site/_families"
_KINDS = {dict: "a mapping (key: value)", list: "a list", str: "text"}
_Kind = TypeVar("_Kind", dict[str, Any], list[Any], str)


@dataclass(frozen=True)
class Requirement:
    """One entry of ``require``: the package must meet at least one of the specs."""

    package: str
    any_of: tuple[str, ...]
    origin: Path
    when: str = ""
    """A spec; for other packages of that name the requirement does not hold."""


@dataclass(frozen=True)
class DeclaredExternal:
    """A package that the system provides; an empty version or prefix is not stated."""

    package: str
    version: str
    prefix: str


@dataclass(frozen=True)
class Manifest:
    """The specs and configuration of one environment."""

    path: Path
    scopes: tuple[Path, ...]
    """Files and directories that it includes, in order of precedence."""
    hides_machine: bool
    """``include::``: the configuration of machine and user does not affect the lock."""
    specs: tuple[str, ...]
    """Root specs, with named lists expanded."""
    requirements: tuple[Requirement, ...]
    externals: frozenset[DeclaredExternal]
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
        """The repository, that of Busbar for an environment in a directory of its own."""
        above = self.path.resolve().parents
        return next((d for d in above if (d / _FAMILIES).is_dir()), data.SITES.parent)

    @property
    def system(self) -> Path | None:
        """The scope of the operating system that its lock is for; None if it includes none."""
        return next(
            (path for path in self.scopes if path.parent.name == systems.SCOPES.name), None
        )

    def includes(self, scope: str) -> bool:
        """Return whether it includes a family's scope of that name."""
        return any(path.name == scope for path in self.scopes)


def load(path: Path) -> Manifest:
    """Read a manifest and its scopes; raise ``BusbarError`` for an invalid file."""
    top = _mapping(path)
    body = top.get("spack")
    if not isinstance(body, dict):
        raise BusbarError(
            "has no `spack:`", where=str(path), hint="see site/_stacks/host/spack.yaml"
        )
    # `include::` replaces instead of adding; YAML reads it as the key "include:".
    hides = "include:" in body
    entries = _part(body, "include:" if hides else "include", list, str(path))
    read = cache(_mapping)
    scopes = tuple(_scopes(path, entries, read))
    files = {path.resolve(): top} | {file: read(file) for s in scopes for file in _files(s)}
    sections = [(_plain(each.get("spack", each)), file) for file, each in files.items()]
    definitions = {
        name: specs
        for section, origin in reversed(sections)
        for entry in _part(section, "definitions", list, str(origin))
        for name, specs in _is(entry, dict, f"{origin}: definitions").items()
    }
    return Manifest(
        path=path,
        scopes=scopes,
        hides_machine=hides,
        specs=tuple(_expanded(_part(body, "specs", list, str(path)), definitions, path)),
        requirements=tuple(_requirements(sections)),
        externals=frozenset(_externals(sections)),
        variants=tuple(_variants(sections)),
        files=files,
        repositories=_repositories(sections),
        target=_target(sections),
    )


def machine_externals() -> frozenset[DeclaredExternal]:
    """Return the externals in the scope of the machine, ``BUSBAR_SPACK_SCOPE``."""
    directory = os.environ.get("BUSBAR_SPACK_SCOPE")
    files = sorted(Path(directory).glob("*.yaml")) if directory else []
    return frozenset(_externals([(_plain(_mapping(file)), file) for file in files]))


def _is(value: Any, kind: type[_Kind], where: str) -> _Kind:
    if isinstance(value, kind):
        return value
    raise BusbarError(f"must be {_KINDS[kind]}", where=where, hint="correct or remove it")


def _part(section: Mapping[str, Any], key: str, kind: type[_Kind], where: str) -> _Kind:
    """Return what is under a key; raise ``BusbarError`` unless it is missing or of that kind."""
    return _is(section[key], kind, f"{where}: {key}") if key in section else kind()


def _packages(
    sections: list[tuple[dict[str, Any], Path]],
) -> Iterator[tuple[str, dict[str, Any], Path, str]]:
    """Yield name and settings of each package, with the file and the place in it."""
    for section, origin in sections:
        for name, settings in _part(section, "packages", dict, str(origin)).items():
            place = f"{origin}: packages.{name}"
            yield name, _is(settings, dict, place), origin, place


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
            raise BusbarError(
                f"includes {entry!r}, which Busbar cannot read",
                where=str(file),
                hint="include a file or directory by its path",
            )
        scope = (file.parent / name).resolve()
        if scope.exists():
            yield scope
            for each in _files(scope):
                inner = _part(_plain(read(each)), "include", list, str(each))
                yield from _scopes(each, inner, read)
        elif not optional:
            what = f"includes {name}, which does not exist"
            raise BusbarError(what, where=str(file), hint="correct the path")


def _files(scope: Path) -> list[Path]:
    if scope.name == _MACHINE:
        return []
    return sorted(scope.glob("*.yaml")) if scope.is_dir() else [scope]


def _expanded(specs: Any, definitions: Mapping[str, Any], path: Path) -> list[str]:
    result = []
    for spec in _is(specs, list, f"{path}: specs"):
        if not str(spec).startswith("$"):
            result.append(str(spec))
        elif str(spec)[1:] in definitions:
            result += _expanded(definitions[str(spec)[1:]], definitions, path)
        else:
            raise BusbarError(
                f"refers to the list {spec}, which no scope defines",
                where=str(path),
                hint=f"known: {', '.join(sorted(definitions)) or 'none'}",
            )
    return result


def _requirements(sections: list[tuple[dict[str, Any], Path]]) -> Iterator[Requirement]:
    for package, settings, origin, place in _packages(sections):
        where = f"{place}.require"
        require = settings.get("require", [])
        for each in [require] if isinstance(require, str | dict) else _is(require, list, where):
            entry = {"spec": each} if isinstance(each, str) else _is(each, dict, where)
            options = entry.get("any_of") or entry.get("one_of") or [entry.get("spec")]
            specs = [_is(spec, str, where) for spec in _is(options, list, where)]
            yield Requirement(package, tuple(specs), origin, _part(entry, "when", str, where))


def _externals(sections: list[tuple[dict[str, Any], Path]]) -> Iterator[DeclaredExternal]:
    for package, settings, _, place in _packages(sections):
        for entry in _part(settings, "externals", list, place):
            external = _is(entry, dict, f"{place}.externals")
            spec = _part(external, "spec", str, f"{place}.externals")
            version = re.search(r"@=?(?P<version>[^\s+~%^]+)", spec)
            prefix = _part(external, "prefix", str, f"{place}.externals")
            yield DeclaredExternal(package, version["version"] if version else "", prefix)


def _repositories(sections: list[tuple[dict[str, Any], Path]]) -> dict[str, Path]:
    return {
        name: (origin.parent / place).resolve()
        for section, origin in sections
        for name, place in _part(section, "repos", dict, str(origin)).items()
        if isinstance(place, str)
    }


def _target(sections: list[tuple[dict[str, Any], Path]]) -> str:
    for package, settings, _, place in _packages(sections):
        if package == "all" and (targets := _part(settings, "target", list, place)):
            return str(targets[0])
    return ""


def _variants(sections: list[tuple[dict[str, Any], Path]]) -> Iterator[str]:
    for package, settings, _, place in _packages(sections):
        variants = settings.get("variants", [])
        if package == "all":
            listed = variants.split() if isinstance(variants, str) else variants
            yield from (str(each) for each in _is(listed, list, f"{place}.variants"))


def _mapping(path: Path) -> dict[str, Any]:
    _, data = load_yaml(path)
    if not isinstance(data, dict):
        raise BusbarError(
            "must be a mapping", where=str(path), hint="see site/_stacks/host/spack.yaml"
        )
    return data
