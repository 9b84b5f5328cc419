# SPDX-License-Identifier: MIT
"""Check each lock against what determined it, and against the required versions.

Spack has met the requirements of the scopes when it solved: the digests of the lock and of its
inputs show that neither has changed since, and `make spack-verify` solves again. What Spack does
not promise is checked here. A lock that a site made on its own system is checked, too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from busbar.errors import BusbarError
from busbar.preflight.elf import numbers
from busbar.site import systems
from busbar.site.stacks import environments, shared
from busbar.spack import Lock, LockedPackage, load

from . import inputs
from .gpu_aware_source import PROGRAM, one_file
from .manifest import Manifest

# ---- What is behind, deprecated or vulnerable in a lock, from versions.yaml, without a network
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


# ---- Checks of a lock
# Two builds of one of these in a job cause failures that are hard to find.
_SINGLE = ("ucx", "ucc", "libfabric", "hwloc", "pmix", "nccl", "rccl", "hip", "cuda")
_MPI = ("openmpi", "mpich", "cray-mpich")
_FORMAT = {"file-type": "spack-lockfile", "lockfile-version": 6, "specfile-version": 5}
# The required versions: by stack and by scope, package to spec or list of specs.
_Pins = Mapping[str, Mapping[str, Mapping[str, Any]]]
PINS: _Pins = yaml.safe_load(Path(__file__).with_name("pins.yaml").read_text())
# Only these packages need amdclang; gcc compiles the rest.
_AMDCLANG = frozenset({"rccl-tests"})


@dataclass(frozen=True)
class LockVerdict:
    """What was found of one lock."""

    problems: tuple[str, ...]
    """One sentence for each problem."""
    made_for: str
    """The system and the target of a lock that was concretized again; empty if it is committed."""


def judge(manifest: Manifest) -> LockVerdict:
    """Check the lock of a manifest.

    Raises ``BusbarError`` for a lock that is missing or cannot be read.
    """
    lock = load(manifest.lock)
    record = inputs.recorded(manifest)
    common = shared(manifest.path.parent) is not None
    system = sorted({node.os for node in lock.nodes.values()})
    built = sorted({node.target for node in lock.nodes.values() if node.prefix is None})
    found = [
        *_not_hidden(manifest),
        *_damaged(lock),
        *((*_unpinned(manifest, lock), *inputs.unsafe(manifest)) if common else ()),
        *_changed(manifest, lock, record),
        *_preferences(manifest, lock),
        *_pins(manifest, lock),
        *_single(lock),
        *_compilers(lock),
        *(what for name, what in defects(lock) if name not in KNOWN["kept"]),
        *(_portable(manifest, lock) if common else _own(manifest, system, built)),
    ]
    made_for = f"{system[0]}, {built[0] if built else 'any target'}" if not common else ""
    return LockVerdict(tuple(found), made_for)


def judge_others(root: Path) -> LockVerdict:
    """Check the scopes and recipes that no committed lock has, such as those of other systems."""
    table = environments((root / inputs.TABLE).parent)
    unknown = {each.system for each in table.values()} - {x.name for x in systems.SCOPES.iterdir()}
    again = "run `make spack-verify`, then `python -m ci.spack.locks record`"
    found = [f"{inputs.TABLE} has a system without a scope: {name}" for name in sorted(unknown)]
    found += [f"{name} has changed; {again}" for name in inputs.changed_others(root)]
    if one_file(root / PROGRAM) != (root / inputs.SOURCE).read_text():
        found.append(f"{inputs.SOURCE} is not of the sources as they are; run `make spack-pin`")
    return LockVerdict(tuple(found), "")


def stack(manifest: Manifest) -> str:
    """Return the stack of a manifest, from the family scope that it includes."""
    included = {path.name for path in manifest.scopes}
    if stacks := [name for name in PINS["stacks"] if name in included]:
        return str(stacks[0])
    hint = f"include one of {', '.join(PINS['stacks'])} from site/_families/spack"
    raise BusbarError("does not include a stack", where=str(manifest.path), hint=hint)


def _not_hidden(manifest: Manifest) -> Iterator[str]:
    if not manifest.hides_machine:
        yield "the manifest has `include:`; use `include::` to exclude the machine's configuration"


def _damaged(lock: Lock) -> Iterator[str]:
    for key, node in lock.nodes.items():
        if key != node.hash or not intact(node.raw):
            yield f"{node} was edited: its hash is not that of its description"


def _unpinned(manifest: Manifest, lock: Lock) -> Iterator[str]:
    pinned = inputs.assigned(manifest.root / inputs.PINS)
    own = _FORMAT | {"type": "git", "commit": pinned.get("SPACK_COMMIT")}
    for key in sorted({*own, *lock.made_by} - {"version"}):
        if (found := lock.made_by.get(key)) != own.get(key):
            yield f"has {key} {found!r} instead of {own.get(key)!r}; run `make spack-lock`"


def _changed(manifest: Manifest, lock: Lock, record: inputs.LockInputs | None) -> Iterator[str]:
    directory = manifest.path.parent
    again = (
        "`make spack-lock`" if shared(directory) else "`make spack-concretize` for this machine"
    )
    if record is None:
        yield f"has no record in {inputs.FILE}, so its inputs are unknown; run {again}"
    elif record.lock != lock.digest:
        yield (
            f"is not the lock that {inputs.FILE} describes; if you concretized it yourself, run"
            f" `python -m ci.spack.locks record {directory}`"
        )
    else:
        for name in inputs.changed(manifest, lock, record):
            yield f"{name} has changed since the lock was made; run {again}"


def _preferences(manifest: Manifest, lock: Lock) -> Iterator[str]:
    """Yield packages for other GPUs; Spack holds them to a preference only."""
    for variant in manifest.variants:
        name = variant.split("=")[0]
        for node in lock.nodes.values():
            if node.prefix is None and name in node.parameters and unmet(node, variant):
                yield f"{node} has {name}={node.parameters[name]}, not {variant}"


def _pins(manifest: Manifest, lock: Lock) -> Iterator[str]:
    required = [PINS["stacks"][stack(manifest)]]
    required += [
        specs
        for scope, specs in PINS["scopes"].items()
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


def _own(manifest: Manifest, system: list[str], built: list[str]) -> Iterator[str]:
    for kind, found in {"systems": system, "targets": built}.items():
        if len(found) > 1:
            yield f"is for several {kind}: {', '.join(found)}"
    # Without the scope of a system, a machine of any system made it.
    if manifest.system and system[0] not in systems.accepted(manifest.system):
        yield f"is for {system[0]}, but its manifest is for {manifest.system.name}"


def unmet(node: LockedPackage, spec: str) -> list[str]:
    """Return the words of ``spec`` that a package does not meet.

    They are ``@5.0``, which 5.0.8 meets, too, ``+cuda``, ``~knem`` and ``fabrics=ucx,ucc``.
    """
    return [word for word in spec.split() if not _meets(node, word)]


def _meets(node: LockedPackage, word: str) -> bool:
    if word[0] == "@":
        return re.match(rf"{re.escape(word[1:])}([.-]|$)", node.version) is not None
    if word[0] in "+~":
        return node.parameters.get(word[1:]) is (word[0] == "+")
    name, _, wanted = word.partition("=")
    value = node.parameters.get(name)
    values = {str(each) for each in (value if isinstance(value, list) else [value])}
    return set(wanted.split(",")) <= values


def intact(raw: Mapping[str, Any]) -> bool:
    """Return whether the hash of a package matches its description.

    It is the sha1 of its JSON in base 32. Spack 1.1 hashes an external before it adds the
    repository and the commit of the recipe.
    """
    described = {key: value for key, value in raw.items() if key != "hash"}
    forms = [described]
    if raw.get("external"):
        known = {key: value for key, value in raw["parameters"].items() if key != "commit"}
        first = {**described, "parameters": known}
        del first["namespace"]
        forms.append(first)
    every = chain(forms, map(_ordered, forms))
    texts = (json.dumps(form, separators=(",", ":")).encode() for form in every)
    digests = (hashlib.sha1(text).digest() for text in texts)  # noqa: S324
    return any(base64.b32encode(each).decode().lower() == raw["hash"] for each in digests)


def _ordered(part: Any, key: str = "") -> Any:
    """Return a package, or a part of it, with its keys as Spack orders them."""
    if isinstance(part, list):
        return [_ordered(each) for each in part]
    if not isinstance(part, dict):
        return part
    last = {name: place for place, name in enumerate(inputs.RULES["order"][key == "parameters"])}
    return {x: _ordered(part[x], x) for x in sorted(part, key=lambda x: (last.get(x, -1), x))}
