# SPDX-License-Identifier: MIT
"""Check each lock against its manifest, what determined it, and the required versions.

A lock that a site made on its own system must keep the manifest and the required versions too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from busbar.errors import BusbarError
from busbar.spack import inputs
from busbar.spack.lock import Lock, load
from busbar.spack.manifest import Manifest, machine_prefixes
from busbar.spack.spec import unmet

# Two builds of one of these in a job cause failures that are hard to find.
_SINGLE = ("ucx", "ucc", "libfabric", "hwloc", "pmix", "nccl", "rccl", "hip", "cuda")
_MPI = ("openmpi", "mpich", "cray-mpich")
_GLIBC = ("glibc", "/usr")
# Only these packages need amdclang; gcc compiles the rest.
_AMDCLANG = frozenset({"rccl-tests"})


@dataclass(frozen=True)
class Verdict:
    """What was found of one lock."""

    problems: tuple[str, ...]
    """One sentence for each problem."""
    made_for: str
    """The system and the target of a lock that was concretized again; empty if it is committed."""


def judge(manifest: Manifest) -> Verdict:
    """Check the lock of a manifest.

    Raises ``BusbarError`` for a lock that is missing or cannot be read.
    """
    lock = load(manifest.lock)
    record = inputs.recorded(manifest)
    committed = record is not None and record.lock == lock.digest
    system = sorted({node.os for node in lock.nodes.values()})
    built = sorted({node.target for node in lock.nodes.values() if node.prefix is None})
    found = [
        *_not_hidden(manifest),
        *_damaged(lock),
        *_roots(manifest, lock),
        *_requirements(manifest, lock),
        *_pins(manifest, lock),
        *_single(lock),
        *_compilers(lock),
    ]
    if committed and record:
        found += [*_changed(manifest, lock, record), *_portable(manifest, lock)]
        found += _externals(lock, manifest.prefixes)
    else:
        found += _externals(lock, manifest.prefixes | machine_prefixes())
        found += [f"is for several systems: {', '.join(system)}"] if len(system) > 1 else []
        found += [f"is for several targets: {', '.join(built)}"] if len(built) > 1 else []
    made_for = "" if committed else f"{system[0]}, {built[0] if built else 'any target'}"
    return Verdict(tuple(found), made_for)


@lru_cache
def pins() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the required versions: by stack and by scope, package to spec or list of specs."""
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("pins.yaml").read_text())
    return data


def stack(manifest: Manifest) -> str:
    """Return the stack of a manifest, from the family scope that it includes."""
    # cray-abi and cray include rocm scopes, so they are tried first.
    for name in ("cray-abi", "cray-cuda", "cray", "cuda", "rocm", "host"):
        if manifest.includes(name):
            return name
    raise BusbarError(
        "does not include a stack",
        where=str(manifest.path),
        hint=f"include one of {', '.join(pins()['stacks'])} from site/_families/spack",
    )


def _not_hidden(manifest: Manifest) -> Iterator[str]:
    if not manifest.hides_machine:
        yield "the manifest has `include:`; use `include::` to exclude the machine's configuration"


def _damaged(lock: Lock) -> Iterator[str]:
    for key, node in lock.nodes.items():
        if node.hash != key or (node.prefix is None and node.computed_hash != key):
            yield f"{node} was edited: its hash is not that of its description"


def _changed(manifest: Manifest, lock: Lock, record: inputs.Record) -> Iterator[str]:
    for name in inputs.changed(manifest, lock, record):
        yield f"{name} has changed since the lock was made; run `make spack-lock`"


def _roots(manifest: Manifest, lock: Lock) -> Iterator[str]:
    specs = {spec.split()[0].split("@")[0].split("+")[0] for spec in manifest.specs}
    roots = {node.name for node in lock.root_nodes()}
    for name in sorted(specs ^ roots):
        side = "missing in the lock" if name in specs else "not in the manifest"
        yield f"root {name}: {side}; run `make spack-lock`"
    for spec, key in lock.roots.items():
        head = spec.split(" %")[0]
        if missing := unmet(lock.nodes[key], head):
            yield f"root {spec!r} is {lock.nodes[key]}, without {' '.join(missing)}"


def _requirements(manifest: Manifest, lock: Lock) -> Iterator[str]:
    for requirement in manifest.requirements:
        for node in lock.named(requirement.package):
            if all(unmet(node, option) for option in requirement.any_of):
                yield (
                    f"{node} does not meet {' or '.join(requirement.any_of)!r}"
                    f" of {requirement.origin.name} in {requirement.origin.parent.name}"
                )


def _pins(manifest: Manifest, lock: Lock) -> Iterator[str]:
    required = [pins()["stacks"][stack(manifest)]]
    required += [
        specs
        for scope, specs in pins()["scopes"].items()
        if any(path.as_posix().endswith(f"/spack/{scope}") for path in manifest.scopes)
    ]
    for specs in required:
        for package, spec in specs.items():
            options = [spec] if isinstance(spec, str) else spec
            nodes = lock.named(package)
            if not nodes:
                yield f"{package} is missing; required: {' or '.join(options)}"
            for node in nodes:
                if all(unmet(node, option) for option in options):
                    yield f"{node} violates the pin {' or '.join(options)}"


def _single(lock: Lock) -> Iterator[str]:
    for name in _SINGLE:
        if len(nodes := lock.named(name)) > 1:
            yield f"{len(nodes)} builds of {name} instead of one: {', '.join(map(str, nodes))}"
    mpis = [node for name in _MPI for node in lock.named(name)]
    if len(mpis) != 1:
        yield f"{len(mpis)} MPIs instead of one: {', '.join(map(str, mpis))}"


def _compilers(lock: Lock) -> Iterator[str]:
    for node in lock.nodes.values():
        compilers = {x: edge for x in ("c", "cxx", "fortran") if (edge := node.provider(x))}
        for language, compiler in compilers.items():
            if (compiler.name == "llvm-amdgpu") != (node.name in _AMDCLANG):
                yield f"{node} is compiled by {compiler.name} ({language})"
        wrapped = any(edge.name == "compiler-wrapper" for edge in node.edges)
        if compilers and node.prefix is None and not wrapped:
            yield f"{node} is compiled without Spack's wrapper; its recipe must depend on it"


def _portable(manifest: Manifest, lock: Lock) -> Iterator[str]:
    system = manifest.system.name if manifest.system else ""
    for node in lock.nodes.values():
        if node.os != system:
            yield f"{node} is for {node.os}, not for {system or 'any system of the manifest'}"
        if node.prefix is None and node.target != manifest.target:
            yield f"{node} is for {node.target}, not for {manifest.target}"


def _externals(lock: Lock, declared: frozenset[str]) -> Iterator[str]:
    for node in lock.nodes.values():
        # Spack detects glibc through the compiler, with prefix /usr.
        if node.prefix is None or node.prefix in declared or (node.name, node.prefix) == _GLIBC:
            continue
        yield f"{node} has prefix {node.prefix}, which no scope declares as an external"
