# SPDX-License-Identifier: MIT
"""What determined a lock, by digest: `site/_stacks/inputs.json`, by name, for committed locks.

All others have a file of that name beside them.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.errors import DAMAGED, BusbarError, value_error
from busbar.parse.numbers import load_json
from busbar.site import systems
from busbar.site.stacks import STACKS, environments, shared
from busbar.site.yamlfile import load_yaml
from busbar.spack import Lock

from . import recipe
from .manifest import Manifest

FILE = "inputs.json"
OTHERS = "other scopes and recipes"
"""The record of what no committed lock has."""
_MOST_BYTES = 2**20
PINS = "ci/spack/pins.env"
"""The file with the commit of Spack."""
TABLE = f"site/{STACKS}/stacks.yaml"
_RECORDS = f"site/{STACKS}/{FILE}"
SOURCE = "packages/spack_repo/busbar/packages/gpu_aware_mpi/gpu_aware.cpp"
"""Our program as one file, which `make spack-pin` writes."""
_REPOSITORY = "repo.yaml"
_PLACES = ("site/_families/spack", "packages")
_RELEASE = "os-release"
"""The file of a system's scope with its C library."""
_READ = ("*.yaml", "*.py", _RELEASE)
RULES: Mapping[str, Any] = load_yaml(Path(__file__).with_name("inputs.yaml"))[1]


@dataclass(frozen=True)
class LockInputs:
    """The digests of a lock and of what determined it."""

    lock: str
    inputs: Mapping[str, str]
    """Digest by file, relative to the repository."""


def current(manifest: Manifest, lock: Lock) -> LockInputs:
    """Return the digests of the lock and of its inputs as they are now."""
    root = manifest.root
    files = {path: text for path, raw in manifest.files.items() if (text := _scope(raw))}
    for package in sorted({node.name for node in lock.nodes.values()}):
        for repository in manifest.repositories.values():
            own = recipe.files(repository, package)
            files |= {path: _text(path, own) for path in own}
    also = [root / PINS, *([manifest.system / _RELEASE] if manifest.system else [])]
    also += [repository / _REPOSITORY for repository in manifest.repositories.values()]
    files |= {path: _text(path) for path in also if path.is_file()}
    if shared(manifest.path.parent):
        files[root / TABLE] = files.pop(manifest.path.resolve())
    names = {shown(path, root): digest for path, digest in files.items()}
    return LockInputs(lock.digest, dict(sorted(names.items())))


def _scope(raw: Mapping[str, Any]) -> str:
    """Return the digest of a file of a scope, with what makes Spack refuse a lock elsewhere."""
    when = [each.get("when") for each in raw.get("include", ()) if isinstance(each, dict)]
    return _configured({"when": when, **raw} if when else raw)


def changed(manifest: Manifest, lock: Lock, record: LockInputs) -> list[str]:
    """Return the inputs that are no longer what they were when the lock was made."""
    now = current(manifest, lock).inputs
    names = now.keys() | record.inputs.keys()
    return sorted(name for name in names if now.get(name) != record.inputs.get(name))


def unsafe(manifest: Manifest) -> Iterator[str]:
    """Yield the settings that no solve reads, with values that a shared scope must not have."""
    for file, raw in manifest.files.items():
        for path, value in _settings(raw.get("spack", raw)):
            for pattern, allowed in RULES["allowed"].items():
                if fnmatchcase(path, pattern) and value not in allowed:
                    found, right = json.dumps(value), json.dumps(allowed[0])
                    where = shown(file, manifest.root)
                    yield f"{where} sets {path} to {found}; remove it, or write {right}"


def _settings(data: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict):
        for key, each in data.items():
            yield from _settings(each, f"{above}:{str(key).rstrip(':')}")
    else:
        yield above[1:], data


def others(root: Path) -> dict[str, str]:
    """Return the digests of the scopes and recipes that no committed lock has."""
    path, hint = root / _RECORDS, "run `make spack-lock`"
    with value_error("cannot be read ({kind}: {})", path, hint, (OSError, *DAMAGED)):
        records = _records(path).items()
        known = {name for key, each in records if key != OTHERS for name in each["inputs"]}
    files = [x for place in _PLACES for kind in _READ for x in (root / place).rglob(kind)]
    names = {name: x for x in sorted(files) if (name := shown(x, root)) not in known}
    return {name: digest for name, path in names.items() if (digest := _text(path))}


def changed_others(root: Path) -> list[str]:
    """Return which of them have changed since they were recorded; a new directory has not."""
    now, old = others(root), _records(root / _RECORDS).get(OTHERS, {})
    places = {Path(name).parent for name in old}
    changed = {name for name in now.keys() | old.keys() if now.get(name) != old.get(name)}
    return sorted(name for name in changed if not old or Path(name).parent in places)


def write_others(root: Path) -> None:
    """Record them."""
    records = {**_records(root / _RECORDS), OTHERS: others(root)}
    _write(root / _RECORDS, dict(sorted(records.items())))


def _place(manifest: Manifest) -> tuple[Path, str]:
    """Return the file with the record of a lock, and its name there; empty for its own file."""
    directory = manifest.path.parent
    own = shared(directory)
    if own is None or own.system != systems.BASE:
        return directory / FILE, ""
    stacks = next(path for path in directory.parents if path.name == STACKS)
    return stacks / FILE, directory.relative_to(stacks).as_posix()


def recorded(manifest: Manifest) -> LockInputs | None:
    """Return the record of a lock; None if there is none."""
    path, name = _place(manifest)
    kinds = (OSError, *DAMAGED)
    with value_error("cannot be read ({kind}: {})", path, "run `make spack-lock`", kinds):
        data = _records(path)
        if not (data := data.get(name) if name else data):
            return None
        return LockInputs(str(data["lock"]), dict(data["inputs"]))


def _records(path: Path) -> Any:
    return load_json(read_text(path, _MOST_BYTES), once=True) if path.exists() else {}


def write(manifest: Manifest, lock: Lock, *, solved: bool = True) -> None:
    """Write the record of a lock that was made just now.

    A lock that was not solved again has new sources of our program only. Raises ``BusbarError`` if
    another input has changed since the lock was solved.
    """
    record = current(manifest, lock)
    if old := recorded(manifest):
        _refuse_unsolved(manifest, lock, old, solved=solved)
    data: dict[str, Any] = {"lock": record.lock, "inputs": record.inputs}
    path, name = _place(manifest)
    if name:
        records = {**_records(path), name: data}
        kept = {OTHERS, *environments(path.parent)}
        data = {key: records[key] for key in sorted(records.keys() & kept)}
    _write(path, data)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(f"{json.dumps(data, indent=1)}\n")


def _refuse_unsolved(manifest: Manifest, lock: Lock, old: LockInputs, *, solved: bool) -> None:
    """Raise ``BusbarError`` for inputs that a lock was not solved with: a solve writes it anew."""
    others = changed(manifest, lock, old)
    if solved:
        others = [each for each in others if _time(manifest.root / each) > _time(lock.path)]
    else:
        others = [each for each in others if each != SOURCE]
    if others:
        what = f"{', '.join(others)} changed since the lock was solved"
        raise BusbarError(what, where=str(lock.path), hint="run `make spack-lock`")


def _time(path: Path) -> int:
    """Return when a file was last written, or the directory from which it was removed."""
    found = next(each for each in (path, *path.parents) if each.exists())
    return found.stat().st_mtime_ns


def shown(path: Path, root: Path) -> str:
    """Return a path from a directory on, if it is below it."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _configured(data: Any) -> str:
    """Return the digest of what a file of configuration says, without comments; empty for none."""
    text = json.dumps(_relevant(data), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() if text != "{}" else ""


def _relevant(data: Any, key: str = "") -> Any:
    """Return what a solve reads under a key; the lists that have no order are sorted."""
    if isinstance(data, str):
        return [_spec(data)] if key in RULES["sets"] else _spec(data)
    if isinstance(data, list):
        parts = [_spec(x) if isinstance(x, str) else _relevant(x, key) for x in data]
        return sorted(parts, key=repr) if key in RULES["sets"] else parts
    if not isinstance(data, dict):
        return data
    read = {
        name: part
        for name, each in data.items()
        if name not in RULES["sections" if key in ("", "spack") else "keys"]
        if key != "config" or name == "deprecated"
        # A definition is a mapping of a name to a list.
        if (part := _relevant(each, key if key == "definitions" else name.rstrip(":"))) != {}
    }
    # The first repository with a recipe wins, so their order counts.
    return list(read.items()) if key == "repos" else read


def _spec(text: str) -> str:
    """Return a spec with its variants and their values in order; not one with dependencies."""
    if set(text) & {*"%^'\""}:
        return text
    words = (word.partition("=") for word in text.split())
    return " ".join(sorted(f"{a}{sign}{','.join(sorted(b.split(',')))}" for a, sign, b in words))


def assigned(path: Path) -> dict[str, str]:
    """Return the variables of a file of the shell; raise ``BusbarError`` if it is invalid."""
    hint = "write NAME=VALUE in each line"
    with value_error("cannot be read: {}", path, hint, (OSError, ValueError)):
        lines = shlex.split(read_text(path, _MOST_BYTES), comments=True)
        found = dict(line.split("=", 1) for line in lines)
        if len(found) < len(lines) or "$" in "".join(lines) or "`" in "".join(lines):
            raise ValueError("a name is there twice, or a value is to be expanded")
    return found


def _text(path: Path, beside: Iterable[Path] = ()) -> str:
    """Return the digest of what a file says, without the right sums of sources beside a recipe."""
    if path.suffix == ".yaml":
        return _scope(load_yaml(path)[1] or {})
    if path.suffix == ".env" or path.name == _RELEASE:
        read = assigned(path)
        return _configured({key: read[key] for key in read.keys() & {*RULES["assigned"]}})
    text = path.read_bytes()
    if path.suffix == ".py":
        text = recipe.meaning(text, path)
    for source in beside:  # they are inputs themselves
        text = text.replace(hashlib.sha256(source.read_bytes()).hexdigest().encode(), b"")
    return hashlib.sha256(text).hexdigest()
