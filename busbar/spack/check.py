# SPDX-License-Identifier: MIT
"""Holds each lock against its manifest, the pins of the mission and what makes a lock portable."""

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
# Two of these in one job is the fault that the project looks for.
_SINGLE = ("ucx", "ucc", "libfabric", "hwloc", "pmix", "nccl", "rccl", "hip", "cuda")
_MPI = ("openmpi", "mpich", "cray-mpich")
# amdclang compiles what needs it and nothing else.
_AMDCLANG = frozenset({"rccl-tests"})


def problems(manifest: Manifest) -> list[str]:
    """Every sentence in which the lock beside ``manifest`` is not what it should be.

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
    """The pins of the mission: by stack and by scope, package to spec or list of specs."""
    data: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("pins.yaml").read_text())
    return data


def stack(manifest: Manifest) -> str:
    """Which stack a manifest is, by the family scope that it includes."""
    # cray-abi and cray include rocm scopes; the order asks for the most special first.
    for name in ("cray-abi", "cray", "cuda", "rocm", "host"):
        if manifest.includes(name):
            return name
    raise BusbarError(
        "includes no stack",
        where=str(manifest.path),
        hint=f"include one of {', '.join(pins()['stacks'])} from site/_families/spack",
    )


def _not_hidden(manifest: Manifest) -> Iterator[str]:
    if not manifest.hides_machine:
        yield "the manifest has `include:`; with `include::` no configuration of a machine gets in"


def _roots(manifest: Manifest, lock: Lock) -> Iterator[str]:
    wanted = sorted(spec.split()[0].split("@")[0].split("+")[0] for spec in manifest.specs)
    found = sorted(node.name for node in lock.root_nodes())
    for name in sorted(set(wanted) ^ set(found)):
        side = "the manifest asks for it" if name in wanted else "no longer asked for"
        yield f"root {name}: {side}; `make spack-lock` solves again"
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
    wanted = [pins()["stacks"][stack(manifest)]]
    wanted += [
        specs
        for scope, specs in pins()["scopes"].items()
        if any(path.as_posix().endswith(f"/spack/{scope}") for path in manifest.scopes)
    ]
    for specs in wanted:
        for package, spec in specs.items():
            options = [spec] if isinstance(spec, str) else spec
            nodes = lock.named(package)
            if not nodes:
                yield f"{package} is missing; the pin is {' or '.join(options)}"
            for node in nodes:
                if all(unmet(node, option) for option in options):
                    yield f"{node} breaks the pin {' or '.join(options)}"


def _single(lock: Lock) -> Iterator[str]:
    for name in _SINGLE:
        if len(nodes := lock.named(name)) > 1:
            yield f"{name} is there {len(nodes)} times: {', '.join(map(str, nodes))}"
    mpis = [node for name in _MPI for node in lock.named(name)]
    if len(mpis) != 1:
        yield f"one MPI is wanted, there are {len(mpis)}: {', '.join(map(str, mpis))}"


def _compilers(lock: Lock) -> Iterator[str]:
    for node in lock.nodes.values():
        compilers = {x: found for x in ("c", "cxx", "fortran") if (found := node.provider(x))}
        for language, compiler in compilers.items():
            if (compiler.name == "llvm-amdgpu") != (node.name in _AMDCLANG):
                yield f"{node} is compiled by {compiler.name} ({language})"
        wrapped = any(edge.name == "compiler-wrapper" for edge in node.edges)
        if compilers and node.prefix is None and not wrapped:
            yield f"{node} is compiled without Spack's wrapper; its recipe should ask for it"


def _portable(manifest: Manifest, lock: Lock) -> Iterator[str]:
    for node in lock.nodes.values():
        if node.os != OS:
            yield f"{node} is for {node.os}; locks are made on {OS}"
        if node.prefix is None and node.target != TARGET:
            yield f"{node} is for {node.target}, not for {TARGET}"
        if node.prefix is not None and not _declared(node, manifest):
            yield f"{node} lies in {node.prefix}, which no scope declares: a path of one machine"


def _declared(node: Node, manifest: Manifest) -> bool:
    # glibc is found through the compiler and lies in the root directory.
    return node.prefix in manifest.prefixes or (node.name == "glibc" and node.prefix == "/usr")
