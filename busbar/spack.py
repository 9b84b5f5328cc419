# SPDX-License-Identifier: MIT
"""The lock of a Spack environment, and the environment for this machine's system."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.errors import DAMAGED, file_error, value_error
from busbar.parse.numbers import load_json
from busbar.parse.tables import refused
from busbar.site import systems
from busbar.site.model import Site
from busbar.site.stacks import MANIFEST, OWN, STACKS, provide

FILE = "spack.lock"
_MOST_BYTES = 64 * 2**20
_FORMAT = 6
_PARTS = ("_meta", "spack", "roots", "concrete_specs")
_HASH_SHOWN = 7
_SCOPE = re.compile(r"^(?P<before> *- \S+/systems/)(?P<system>\S+)\n", re.MULTILINE)
"""The manifest line that includes the scope of a system."""
_INCLUDED = re.compile(r"^(?P<before> *- )(?P<path>\.\.?/\S+)$", re.MULTILINE)
# Prefixes of Spack's target names for Arm CPUs.
_ARM = ("aarch64", "armv", "neoverse", "graviton", "a64fx", "thunderx")
_AGAIN = "make spack-externals SITE={site}, then make spack-concretize SITE={site}"


@dataclass(frozen=True)
class Edge:
    """A dependency and the virtuals that it provides."""

    name: str
    hash: str
    virtuals: frozenset[str]


@dataclass(frozen=True)
class LockedPackage:
    """One concrete package."""

    name: str
    version: str
    hash: str
    namespace: str
    package_hash: str
    target: str
    os: str
    parameters: Mapping[str, Any]
    prefix: str | None
    """Prefix of an external, empty if it only has modules; None if Spack builds the package."""
    compilers: tuple[str, ...]
    """The programs of an external compiler."""
    edges: tuple[Edge, ...]
    raw: Mapping[str, Any] = field(repr=False)
    """The package's entry in the lock."""

    def __str__(self) -> str:
        return f"{self.name}@{self.version}/{self.hash[:_HASH_SHOWN]}"

    def provider(self, virtual: str) -> Edge | None:
        """Return the dependency that provides a virtual, such as ``c`` or ``mpi``, or None."""
        return next((edge for edge in self.edges if virtual in edge.virtuals), None)


@dataclass(frozen=True)
class Lock:
    """The content of a lock file."""

    path: Path
    roots: Mapping[str, str]
    """Spec of the manifest to hash."""
    nodes: Mapping[str, LockedPackage]
    digest: str
    """Digest of roots and packages, independent of their order."""
    made_by: Mapping[str, Any]
    """Lock format, version and commit of Spack, and what else the lock has."""

    def named(self, name: str) -> tuple[LockedPackage, ...]:
        """Return the packages with this name."""
        return tuple(node for node in self.nodes.values() if node.name == name)


def load(path: Path) -> Lock:
    """Read a lock; raise ``BusbarError`` if it is missing, damaged or has another format."""
    unread = "pass a spack.lock, or write it with `make spack-lock`"
    with (
        file_error("cannot be read", path, unread),
        value_error("not a Spack lock ({kind}: {})", path, "run `make spack-lock`", DAMAGED),
    ):
        data = load_json(read_text(path, _MOST_BYTES), once=True)
        version = data["_meta"]["lockfile-version"]
        if version != _FORMAT:
            raise refused(__file__, "unknown-format", path, version=version, known=_FORMAT)
        nodes = {key: _node(raw) for key, raw in data["concrete_specs"].items()}
        roots = {root["spec"]: root["hash"] for root in data["roots"]}
        content = json.dumps([roots, data["concrete_specs"]], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
        if len(roots) < len(data["roots"]):
            raise ValueError("a root is there twice")
        others = {key: value for key, value in data.items() if key not in _PARTS}
        made_by = {**data["_meta"], **data.get("spack", {}), **others}
    for missing in {*roots.values(), *(e.hash for n in nodes.values() for e in n.edges)} - set(
        nodes
    ):
        raise refused(__file__, "incomplete", path, missing=missing)
    return Lock(path, roots, nodes, digest, made_by)


def _node(raw: dict[str, Any]) -> LockedPackage:
    external = raw.get("external") or {}
    target = raw["arch"]["target"]
    texts = ("name", "version", "hash", "namespace")
    node = LockedPackage(
        **{key: raw[key] for key in texts},
        package_hash=raw.get("package_hash", ""),
        target=target if isinstance(target, str) else target["name"],
        os=raw["arch"]["platform_os"],
        parameters=raw["parameters"],
        prefix=(external.get("path") or "") if external else None,
        compilers=tuple((external.get("extra_attributes") or {}).get("compilers", {}).values()),
        edges=tuple(
            Edge(edge["name"], edge["hash"], frozenset(edge["parameters"]["virtuals"]))
            for edge in raw.get("dependencies", ())
        ),
        raw=raw,
    )
    wrong = [key for key in (*texts, "target", "os") if not isinstance(getattr(node, key), str)]
    if wrong or not isinstance(node.parameters, dict):
        raise TypeError(f"{node.name}: {', '.join(wrong) or 'parameters'}")
    return node


def require_installable(lock: Lock, site: str) -> None:
    """Raise ``BusbarError`` unless this machine has the system and externals of a lock.

    Spack starts to install a lock anywhere, and fails after an hour.
    """
    made = sorted({node.os for node in lock.nodes.values()})
    here = systems.of_machine()
    again = _AGAIN.format(site=site)
    if made not in ([here], [systems.locked(here)]):
        words = {"systems": made, "here": here or "an unknown system", "again": again}
        raise refused(__file__, "other-system", lock.path, **words)
    cpu = platform.machine()
    targets = sorted({node.target for node in lock.nodes.values() if node.prefix is None})
    if other := [each for each in targets if each.startswith(_ARM) is not (cpu == "aarch64")]:
        raise refused(__file__, "other-target", lock.path, targets=other, cpu=cpu, again=again)
    missing = sorted(
        f"{node.name}@{node.version} ({path})"
        for node in lock.nodes.values()
        if node.prefix
        for path in (node.prefix, *node.compilers)
        if not Path(path).exists()
    )
    if missing:
        raise refused(__file__, "lacks", lock.path, missing=missing, again=again)


def own_environment(site: Site, directory: Path) -> Path:
    """Write a site's environment for this machine to the site's directory; return it.

    It equals another environment except for the system. Its compiler comes from the system's
    scope, or is the machine's own.
    """
    here = systems.locked(systems.of_machine())
    if site.directory is None or directory.is_relative_to(site.directory):
        return directory
    text = provide(directory).read_text()
    scope = _SCOPE.search(text)
    own = scope["system"] if scope else ""
    stacks = next(path for path in directory.parents if path.name == STACKS)
    name, *lane = directory.relative_to(stacks).parts
    system = f"-{here}" if here != systems.BASE else ""
    made = site.directory.joinpath(OWN, f"{name.removesuffix(f'-{own}')}{system}", *lane)
    if not (made / MANIFEST).exists():
        known = (systems.SCOPES / here).is_dir()
        if known and not scope:
            base = systems.SCOPES / systems.BASE
            raise refused(__file__, "no-scope", directory / MANIFEST, scope=base)
        made.mkdir(parents=True, exist_ok=True)
        text = _SCOPE.sub(rf"\g<before>{here}\n" if known else "", text)
        above = _INCLUDED.sub(
            lambda line: line["before"] + os.path.relpath(directory / line["path"], made), text
        )
        (made / MANIFEST).write_text(above)
    return made
