# SPDX-License-Identifier: MIT
"""Read a `spack.yaml` with the configuration scopes that it includes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbar.errors import BusbarError
from busbar.site import systems
from busbar.site.yamlfile import load_yaml
from busbar.spack import lock

# The scope that a machine adds; it is not part of the repository.
_MACHINE = "machine"


@dataclass(frozen=True)
class Requirement:
    """One entry of ``require``: the package must meet at least one of the specs."""

    package: str
    any_of: tuple[str, ...]
    origin: Path


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
    prefixes: frozenset[str]
    """The prefixes of all externals."""
    files: tuple[Path, ...]
    """The manifest and all files of its scopes, but for the scope of the machine."""
    repositories: Mapping[str, Path]
    """The directories of recipes that are part of this repository, by namespace."""
    target: str
    """The target that is preferred for all packages; empty if none is."""

    @property
    def lock(self) -> Path:
        """The path of its lock."""
        return self.path.with_name(lock.FILE)

    @property
    def root(self) -> Path:
        """The repository: the directory with `site/_families`."""
        return next(d for d in self.path.resolve().parents if (d / "site/_families").is_dir())

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
    entries = body.get("include:") if hides else body.get("include")
    scopes = tuple(_scope(path, entry) for entry in entries or ())
    sections = [(_plain(body), path)]
    for scope in scopes:
        files = sorted(scope.glob("*.yaml")) if scope.is_dir() else [scope]
        sections += [(_plain(_mapping(file)), file) for file in files if scope.name != _MACHINE]
    definitions = {
        name: specs
        for section, _ in reversed(sections)
        for entry in section.get("definitions", ())
        for name, specs in entry.items()
    }
    return Manifest(
        path=path,
        scopes=scopes,
        hides_machine=hides,
        specs=tuple(_expanded(body.get("specs", ()), definitions, path)),
        requirements=tuple(_requirements(sections)),
        prefixes=frozenset(_prefixes(sections)),
        files=tuple(file.resolve() for _, file in sections),
        repositories=_repositories(sections),
        target=_target(sections),
    )


def find(sites: Path) -> list[Manifest]:
    """Return the manifests of all environments of the sites, sorted by path."""
    return [load(path) for path in sorted(sites.glob("**/spack.yaml"))]


def machine_prefixes() -> frozenset[str]:
    """Return the prefixes of externals in the scope of the machine, ``BUSBAR_SPACK_SCOPE``."""
    directory = os.environ.get("BUSBAR_SPACK_SCOPE")
    files = sorted(Path(directory).glob("*.yaml")) if directory else []
    return frozenset(_prefixes([(_plain(_mapping(file)), file) for file in files]))


def _plain(value: Any) -> Any:
    """Return a section without the colons of keys that replace what lower scopes have."""
    if isinstance(value, dict):
        return {str(key).rstrip(":"): _plain(each) for key, each in value.items()}
    return value


def _scope(manifest: Path, entry: Any) -> Path:
    name = entry["path"] if isinstance(entry, dict) else entry
    scope = (manifest.parent / str(name)).resolve()
    if not scope.exists():
        raise BusbarError(
            f"includes {name}, which does not exist", where=str(manifest), hint="correct the path"
        )
    return scope


def _expanded(specs: Any, definitions: Mapping[str, Any], path: Path) -> list[str]:
    result = []
    for spec in specs:
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


def _requirements(sections: list[tuple[dict[str, Any], Path]]) -> list[Requirement]:
    requirements = []
    for section, origin in sections:
        for package, settings in section.get("packages", {}).items():
            require = settings.get("require", ())
            for entry in [require] if isinstance(require, str | dict) else require:
                options = (
                    [entry]
                    if isinstance(entry, str)
                    else entry.get("any_of") or entry.get("one_of") or [entry["spec"]]
                )
                requirements.append(Requirement(package, tuple(options), origin))
    return requirements


def _prefixes(sections: list[tuple[dict[str, Any], Path]]) -> list[str]:
    return [
        external["prefix"]
        for section, _ in sections
        for settings in section.get("packages", {}).values()
        for external in settings.get("externals", ())
    ]


def _repositories(sections: list[tuple[dict[str, Any], Path]]) -> dict[str, Path]:
    return {
        name: (origin.parent / place).resolve()
        for section, origin in sections
        for name, place in section.get("repos", {}).items()
        if isinstance(place, str)
    }


def _target(sections: list[tuple[dict[str, Any], Path]]) -> str:
    for section, _ in sections:
        targets = section.get("packages", {}).get("all", {}).get("target", ())
        if targets:
            return str(targets[0])
    return ""


def _mapping(path: Path) -> dict[str, Any]:
    _, data = load_yaml(path)
    if not isinstance(data, dict):
        raise BusbarError(
            "must be a mapping", where=str(path), hint="see site/_stacks/host/spack.yaml"
        )
    return data
