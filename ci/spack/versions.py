# SPDX-License-Identifier: MIT
"""What is behind, deprecated or vulnerable in a lock, from `versions.yaml`; needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from busbar.preflight.elf import numbers
from busbar.spack import Lock

_PARTS = ("major", "minor", "patch", "build")
# What is known of versions.
KNOWN: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("versions.yaml").read_text())


def behind(version: str, newest: str) -> str:
    """Return by how much a version is behind, as in ``2 minor``; empty if it is not."""
    own, other = numbers(version), numbers(newest)
    for part, old, new in zip(_PARTS, own, other, strict=False):
        if old != new:
            return f"{new - old} {part}" if new > old else ""
    return f"1 {_PARTS[len(own)]}" if len(own) < len(other) <= len(_PARTS) else ""


def _at_run_time(lock: Lock) -> set[str]:
    """Return the hashes of what is linked or run by the roots."""
    found: set[str] = set()
    waiting = [*lock.roots.values()]
    while waiting:
        if (key := waiting.pop()) not in found:
            found.add(key)
            edges = lock.nodes[key].raw.get("dependencies", ())
            kinds = [(edge["hash"], {*edge["parameters"]["deptypes"]}) for edge in edges]
            waiting += [key for key, kind in kinds if kind & {"link", "run"}]
    return found


def defects(lock: Lock, *, to_build: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each package that Spack builds in a deprecated or vulnerable version, and why.

    A vulnerability counts at run time; ``to_build`` yields those of all other packages instead.
    """
    at_run_time = _at_run_time(lock)
    for key, node in lock.nodes.items():
        entry = KNOWN["packages"].get(node.name, {}) if node.prefix is None else {}
        if not to_build and node.version in entry.get("deprecated", ()):
            yield node.name, f"{node.name}@{node.version} is deprecated by its recipe"
        for cve, fixed in entry.get("fixed", {}).items():
            if (key in at_run_time) is not to_build and behind(node.version, fixed):
                yield node.name, f"{node.name}@{node.version} has {cve}, which {fixed} fixes"


def outdated(lock: Lock) -> Iterator[str]:
    """Yield each package that is behind, and each that is deprecated or vulnerable, and why."""
    pinned = {(node.name, node.version) for node in lock.nodes.values()}
    for name, version in {*pinned, ("spack", lock.made_by["version"])}:
        newest = KNOWN["packages"].get(name, {}).get("newest", "")
        if how := behind(version, newest):
            yield f"{name}@{version} is {how} behind {newest}"
    yield from (f"{why}; kept: {KNOWN['kept'].get(name, 'no')}" for name, why in defects(lock))
    yield from (f"{why}; only used to build" for _, why in defects(lock, to_build=True))
