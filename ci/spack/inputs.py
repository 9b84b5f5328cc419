# SPDX-License-Identifier: MIT
"""What determined a lock, by digest: `inputs.json` beside each committed `spack.lock`.

That of a lock which a machine made for itself says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.errors import BusbarError
from busbar.parse.numbers import load_json
from busbar.spack import Lock

from .manifest import Manifest

FILE = "inputs.json"
_MOST_BYTES = 2**20
_PINS = "ci/spack/pins.env"
"""The file with the commit of Spack."""
_RELEASE = "os-release"
"""The file of a system's scope with its C library."""
_NO_INPUT = frozenset({"include", "modules", "view", "mirrors", "bootstrap"})
"""Sections of Spack's configuration that no solve reads."""
# The source of our program is in its recipe as one file, which is written from these.
_SOURCES: Mapping[str, Sequence[str]] = {
    "gpu-aware-mpi": (
        "packages/spack_repo/busbar/packages/gpu_aware_mpi/gpu_aware.cpp",
        "reframe_checks/src/gpu_aware.cpp",
        "reframe_checks/src/*.hpp",
    )
}


@dataclass(frozen=True)
class LockInputs:
    """The digests of a lock and of what determined it."""

    lock: str
    inputs: Mapping[str, str]
    """Digest by file, relative to the repository."""
    machine: bool = False
    """A machine made the lock for itself."""


def current(manifest: Manifest, lock: Lock) -> LockInputs:
    """Return the digests of the lock and of its inputs as they are now."""
    root = manifest.root
    files = {path: text for path, raw in manifest.files.items() if (text := _configured(raw))}
    for package in sorted({node.name for node in lock.nodes.values()}):
        own = _sources_of(manifest, package)
        files |= {path: _text(path) for path in own}
        files |= {path: _text(path, hide_sums=bool(own)) for path in _recipe_of(manifest, package)}
    others = [root / _PINS, *([manifest.system / _RELEASE] if manifest.system else [])]
    files |= {path: _text(path) for path in others if path.is_file()}
    names = {_shown(path, root): digest for path, digest in files.items()}
    return LockInputs(lock.digest, dict(sorted(names.items())))


def changed(manifest: Manifest, lock: Lock, record: LockInputs) -> list[str]:
    """Return the inputs that are no longer what they were when the lock was made."""
    now = current(manifest, lock).inputs
    names = now.keys() | record.inputs.keys()
    return sorted(name for name in names if now.get(name) != record.inputs.get(name))


def recorded(manifest: Manifest) -> LockInputs | None:
    """Return the record beside a lock; None if there is none."""
    path = manifest.path.with_name(FILE)
    if not path.exists():
        return None
    try:
        data = load_json(read_text(path, _MOST_BYTES))
        return LockInputs(str(data["lock"]), dict(data["inputs"]), data.get("machine") is True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BusbarError(
            f"cannot be read ({type(error).__name__}: {error})",
            where=str(path),
            hint="run `make spack-lock`",
        ) from error


def write(manifest: Manifest, lock: Lock, *, solved: bool = True, machine: bool = False) -> None:
    """Write the record of a lock that was made just now, by ``machine`` for itself.

    A lock that was not solved again has new sources of our program only. Raises ``BusbarError`` if
    another input has changed since the lock was solved.
    """
    record = current(manifest, lock)
    old = recorded(manifest)
    if old and not solved:
        sources = (path for package in _SOURCES for path in _sources_of(manifest, package))
        own = {_shown(path, manifest.root) for path in sources}
        if others := [name for name in changed(manifest, lock, old) if name not in own]:
            raise BusbarError(
                f"{', '.join(others)} changed since the lock was solved",
                where=str(manifest.lock),
                hint="run `make spack-lock`",
            )
        machine = old.machine
    kind = {"machine": True} if machine else {}
    text = json.dumps({"lock": record.lock, **kind, "inputs": record.inputs}, indent=1)
    manifest.path.with_name(FILE).write_text(f"{text}\n")


def _shown(path: Path, root: Path) -> str:
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _recipe_of(manifest: Manifest, package: str) -> list[Path]:
    """Return the files of our recipe for a package."""
    return [
        file
        for repository in manifest.repositories.values()
        for file in (repository / "packages" / package.replace("-", "_")).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not _of_editor(file.name)
    ]


def _of_editor(name: str) -> bool:
    return name.startswith(".") or name.endswith("~")


def _sources_of(manifest: Manifest, package: str) -> list[Path]:
    """Return the sources of a package that is built from this repository."""
    return [file for each in _SOURCES.get(package, ()) for file in manifest.root.glob(each)]


def _configured(data: Any) -> str:
    """Return the digest of what a file of configuration says, without comments; empty for none."""
    text = json.dumps(_relevant(data), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() if text != "{}" else ""


def _relevant(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    if isinstance(data.get("spack"), dict):
        return {"spack": _relevant(data["spack"])}
    # The first repository with a recipe wins, so their order counts.
    return {
        key: list(value.items()) if key.rstrip(":") == "repos" else value
        for key, value in data.items()
        if key not in _NO_INPUT
    }


def _text(path: Path, *, hide_sums: bool = False) -> str:
    text = path.read_bytes()
    if hide_sums:  # those of the sources, which are inputs themselves
        text = re.sub(rb'"[0-9a-f]{64}"', b'""', text)
    return hashlib.sha256(text).hexdigest()
