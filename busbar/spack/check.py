# SPDX-License-Identifier: MIT
"""Check each lock against its manifest, the required versions and the rules of portability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from busbar.errors import BusbarError
from busbar.spack.lock import Lock, Node, load
from busbar.spack.manifest import Manifest
from busbar.spack.spec import unmet

TARGET = "x86_64_v3"
OS = "debian12"
# Two builds of one of these in a job cause failures that are hard to find.
_SINGLE = ("ucx", "ucc", "libfabric", "hwloc", "pmix", "nccl", "rccl", "hip", "cuda")
_MPI = ("openmpi", "mpich", "cray-mpich")
# Only these packages need amdclang; gcc compiles the rest.
_AMDCLANG = frozenset({"rccl-tests"})


def problems(manifest: Manifest) -> list[str]:
    """Return one sentence for each problem of the manifest's lock.

    Raises ``BusbarError`` for a lock that is missing or cannot be read.
    """
    lock = load(manifest.lock)
    return [
        *_not_hidden(manifest),
        *_roots(manifest, lock),
        *_requirements(manifest, lock),
        *_pins(manifest, lock),
        *_single(lock),
        *_compilers(lock),
        *_portable(manifest, lock),
    ]


@lru_cache
def pins() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the required versions: by stack and by scope, package to spec or list of specs."""
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("pins.yaml").read_text())
    return data


def stack(manifest: Manifest) -> str:
    """Return the stack of a manifest, from the family scope that it includes."""
    # cray-abi and cray include rocm scopes, so they are tried first.
    for name in ("cray-abi", "cray", "cuda", "rocm", "host"):
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
    for node in lock.nodes.values():
        if node.os != OS:
            yield f"{node} is for {node.os}, not for {OS}"
        if node.prefix is None and node.target != TARGET:
            yield f"{node} is for {node.target}, not for {TARGET}"
        if node.prefix is not None and not _declared(node, manifest):
            yield f"{node} has prefix {node.prefix}, which no scope declares as an external"


def _declared(node: Node, manifest: Manifest) -> bool:
    # Spack detects glibc through the compiler, with prefix /usr.
    return node.prefix in manifest.prefixes or (node.name == "glibc" and node.prefix == "/usr")
