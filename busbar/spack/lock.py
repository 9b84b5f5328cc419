# SPDX-License-Identifier: MIT
"""Read a `spack.lock`: its roots and packages; compare two locks."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbar.errors import BusbarError
from busbar.json_text import load_json
from busbar.text_file import read_text

FILE = "spack.lock"
_MOST_BYTES = 64 * 2**20
_FORMAT = 6
_HASH_SHOWN = 7


@dataclass(frozen=True)
class Edge:
    """A dependency and the virtuals that it provides."""

    name: str
    hash: str
    virtuals: frozenset[str]


@dataclass(frozen=True)
class Node:
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
    """Prefix of an external, empty if it has modules only; None if Spack builds the package."""
    compilers: tuple[str, ...]
    """The programs of an external compiler."""
    edges: tuple[Edge, ...]
    computed_hash: str
    """The hash of its description, as Spack computes it."""

    def __str__(self) -> str:
        return f"{self.name}@{self.version}/{self.hash[:_HASH_SHOWN]}"

    def provider(self, virtual: str) -> Edge | None:
        """Return the dependency that provides a virtual, such as ``c`` or ``mpi``; else None."""
        return next((edge for edge in self.edges if virtual in edge.virtuals), None)


@dataclass(frozen=True)
class Lock:
    """The content of a lock file."""

    path: Path
    spack_commit: str
    roots: Mapping[str, str]
    """Spec of the manifest to hash."""
    nodes: Mapping[str, Node]
    digest: str
    """The digest of roots and packages; their order does not matter."""

    def named(self, name: str) -> tuple[Node, ...]:
        """Return the packages of that name."""
        return tuple(node for node in self.nodes.values() if node.name == name)

    def root_nodes(self) -> Iterator[Node]:
        """Yield the packages of the manifest's specs."""
        return (self.nodes[key] for key in self.roots.values())


def load(path: Path) -> Lock:
    """Read a lock; raise ``BusbarError`` if it is missing, damaged or of another format."""
    try:
        data = load_json(read_text(path, _MOST_BYTES))
        version = data["_meta"]["lockfile-version"]
        if version != _FORMAT:
            raise BusbarError(
                f"unknown lock format {version}; Spack 1.1 writes format {_FORMAT}",
                where=str(path),
                hint="write the lock with `make spack-lock`",
            )
        nodes = {key: _node(raw) for key, raw in data["concrete_specs"].items()}
        roots = {root["spec"]: root["hash"] for root in data["roots"]}
        spack = data["spack"]
        content = json.dumps([roots, data["concrete_specs"]], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()
    except OSError as error:
        raise BusbarError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            hint="name a spack.lock, or write it with `make spack-lock`",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BusbarError(
            f"not a lock of Spack ({type(error).__name__}: {error})",
            where=str(path),
            hint="run `make spack-lock`",
        ) from error
    for missing in {*roots.values(), *(e.hash for n in nodes.values() for e in n.edges)} - set(
        nodes
    ):
        raise BusbarError(
            f"refers to {missing}, which it does not contain",
            where=str(path),
            hint="run `make spack-lock`",
        )
    return Lock(path, spack.get("commit", ""), roots, nodes, digest)


def differences(old: Lock, new: Lock) -> list[str]:
    """Return the differences by root and by package; empty if both locks install the same.

    The order of a lock file changes from run to run of Spack, so the text is not compared.
    """
    lines = [f"root {spec!r} removed" for spec in sorted(old.roots.keys() - new.roots.keys())]
    lines += [f"root {spec!r} added" for spec in sorted(new.roots.keys() - old.roots.keys())]
    for spec in sorted(old.roots.keys() & new.roots.keys()):
        was, now = old.nodes[old.roots[spec]], new.nodes[new.roots[spec]]
        if was.name != now.name:
            lines.append(f"root {spec!r}: {was} -> {now}")
    removed = [old.nodes[key] for key in old.nodes.keys() - new.nodes.keys()]
    added = [new.nodes[key] for key in new.nodes.keys() - old.nodes.keys()]
    for name in sorted({node.name for node in (*removed, *added)}):
        before = [node for node in removed if node.name == name]
        after = [node for node in added if node.name == name]
        if len(before) == len(after) == 1:
            lines.append(f"{before[0]} -> {after[0]}: {_reason(before[0], after[0])}")
        else:
            lines += [f"{node} removed" for node in before] + [f"{node} added" for node in after]
    return lines


def _reason(before: Node, after: Node) -> str:
    changed = [
        f"{label} {getattr(before, field)} -> {getattr(after, field)}"
        for label, field in (
            ("version", "version"),
            ("repository", "namespace"),
            ("target", "target"),
            ("os", "os"),
            ("prefix", "prefix"),
        )
        if getattr(before, field) != getattr(after, field)
    ]
    keys = sorted(before.parameters.keys() | after.parameters.keys())
    changed += [
        f"{key}={before.parameters.get(key)} -> {after.parameters.get(key)}"
        for key in keys
        if before.parameters.get(key) != after.parameters.get(key)
    ]
    if before.package_hash != after.package_hash:
        changed.append("recipe or source")
    names = {edge.name for edge in before.edges} ^ {edge.name for edge in after.edges}
    if names:
        changed.append("dependencies " + ", ".join(sorted(names)))
    return "; ".join(changed) or "a dependency changed"


def _node(raw: dict[str, Any]) -> Node:
    external = raw.get("external") or {}
    target = raw["arch"]["target"]
    texts = ("name", "version", "hash", "namespace")
    node = Node(
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
        computed_hash=hash_of(raw),
    )
    wrong = [key for key in (*texts, "target", "os") if not isinstance(getattr(node, key), str)]
    if wrong or not isinstance(node.parameters, dict):
        raise TypeError(f"{node.name}: {', '.join(wrong) or 'parameters'}")
    return node


def hash_of(raw: Mapping[str, Any]) -> str:
    """Return the hash that Spack gives to a package: sha1 of its JSON in base 32.

    It hashes an external before it adds the repository and the commit of the recipe.
    """
    described = {key: value for key, value in raw.items() if key != "hash"}
    if raw.get("external"):
        del described["namespace"]
        described["parameters"] = {k: v for k, v in raw["parameters"].items() if k != "commit"}
    text = json.dumps(described, separators=(",", ":"))
    return base64.b32encode(hashlib.sha1(text.encode()).digest()).decode().lower()  # noqa: S324
