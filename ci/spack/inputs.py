# SPDX-License-Identifier: MIT
"""What determined a lock, by digest: `site/_stacks/inputs.json`, by name, for committed locks.

All others have a file of that name beside them. That of a lock which a machine made for itself
says so.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from busbar.boundary import read_text
from busbar.errors import DAMAGED, BusbarError, value_error
from busbar.parse.numbers import load_json
from busbar.site import systems
from busbar.site.stacks import STACKS, environments, shared
from busbar.site.yamlfile import load_yaml
from busbar.spack import Lock

from .manifest import Manifest

FILE = "inputs.json"
_MOST_BYTES = 2**20
PINS = "ci/spack/pins.env"
"""The file with the commit of Spack."""
TABLE = f"site/{STACKS}/stacks.yaml"
_RECIPE, _REPOSITORY = "package.py", "repo.yaml"
_RELEASE = "os-release"
"""The file of a system's scope with its C library."""
_RULES: Mapping[str, Any] = load_yaml(Path(__file__).with_name("inputs.yaml"))[1]
_SOURCES = _RULES["sources"]


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
        files |= {path: _text(path, own) for path in _recipe_of(manifest, package)}
    for repository in manifest.repositories.values():
        file = repository / _REPOSITORY
        files |= {file: _configured(load_yaml(file)[1])} if file.is_file() else {}
    others = [root / PINS, *([manifest.system / _RELEASE] if manifest.system else [])]
    for path in others:
        if path.is_file():
            read = {key: each for key, each in assigned(path).items() if key in _RULES["assigned"]}
            files[path] = _configured(read)
    for path, raw in manifest.files.items():
        # What makes Spack refuse the lock on other systems.
        when = [each.get("when") for each in raw.get("include", ()) if isinstance(each, dict)]
        files |= {path: _configured({"when": when, **raw})} if when else {}
    if shared(manifest.path.parent):
        files[root / TABLE] = files.pop(manifest.path.resolve())
    names = {shown(path, root): digest for path, digest in files.items()}
    return LockInputs(lock.digest, dict(sorted(names.items())))


def changed(manifest: Manifest, lock: Lock, record: LockInputs) -> list[str]:
    """Return the inputs that are no longer what they were when the lock was made."""
    now = current(manifest, lock).inputs
    names = now.keys() | record.inputs.keys()
    return sorted(name for name in names if now.get(name) != record.inputs.get(name))


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
        return LockInputs(str(data["lock"]), dict(data["inputs"]), data.get("machine") is True)


def _records(path: Path) -> Any:
    return load_json(read_text(path, _MOST_BYTES)) if path.exists() else {}


def write(manifest: Manifest, lock: Lock, *, solved: bool = True, machine: bool = False) -> None:
    """Write the record of a lock that was made just now, by ``machine`` for itself.

    A lock that was not solved again has new sources of our program only. Raises ``BusbarError`` if
    another input has changed since the lock was solved.
    """
    record = current(manifest, lock)
    if old := recorded(manifest):
        _refuse_unsolved(manifest, lock, old, solved=solved)
    machine = machine or bool(old and old.machine and not solved)
    kind = {"machine": True} if machine else {}
    data: dict[str, Any] = {"lock": record.lock, **kind, "inputs": record.inputs}
    path, name = _place(manifest)
    if name:
        records = {**_records(path), name: data}
        data = {key: records[key] for key in sorted(records.keys() & environments(path.parent))}
    path.write_text(f"{json.dumps(data, indent=1)}\n")


def _refuse_unsolved(manifest: Manifest, lock: Lock, old: LockInputs, *, solved: bool) -> None:
    """Raise ``BusbarError`` for inputs that a lock was not solved with: a solve writes it anew."""
    others = changed(manifest, lock, old)
    if solved:
        others = [each for each in others if _time(manifest.root / each) > _time(lock.path)]
    else:
        sources = (path for package in _SOURCES for path in _sources_of(manifest, package))
        own = {shown(path, manifest.root) for path in sources}
        others = [each for each in others if each not in own]
    if others:
        raise BusbarError(
            f"{', '.join(others)} changed since the lock was solved",
            where=str(lock.path),
            hint="run `make spack-lock`",
        )


def _time(path: Path) -> int:
    """Return when a file was last written, or the directory from which it was removed."""
    found = next(each for each in (path, *path.parents) if each.exists())
    return found.stat().st_mtime_ns


def shown(path: Path, root: Path) -> str:
    """Return a path from a directory on, if it is below it."""
    return (path.relative_to(root) if path.is_relative_to(root) else path).as_posix()


def _recipe_of(manifest: Manifest, package: str) -> list[Path]:
    """Return the files of our recipe for a package."""
    found = []
    for repository in manifest.repositories.values():
        directory = repository / "packages" / package.replace("-", "_")
        if (recipe := directory / _RECIPE).is_file():
            texts = _texts(recipe.read_bytes(), recipe)
            found += [x for x in directory.rglob("*.py") if "__pycache__" not in x.parts]
            modules = [x for x in repository.rglob("*.py") if directory.parent not in x.parents]
            found += [
                file
                for file in (*directory.rglob("*"), *modules)
                if file.suffix in texts or any(_name_in(file, directory, text) for text in texts)
            ]
    return [file for file in found if file.is_file()]


def _name_in(file: Path, directory: Path, text: str) -> bool:
    """Return whether a text of a recipe names a file, a directory above it, or a module."""
    if directory in file.parents:
        return any(part in text for part in file.relative_to(directory).parts)
    return Path(file.relative_to(directory.parents[1]).parts[0]).stem in text


@lru_cache
def _texts(recipe: bytes, path: Path) -> frozenset[str]:
    """Return the texts in a recipe, and the modules that it imports."""
    nodes = list(ast.walk(_parsed(recipe, path)))
    words = [x.value for x in nodes if isinstance(x, ast.Constant)]
    words += [x.module for x in nodes if isinstance(x, ast.ImportFrom)]
    return frozenset(word for word in words if word and isinstance(word, str))


def _parsed(recipe: bytes, path: Path) -> ast.Module:
    kinds = (SyntaxError, ValueError)
    with value_error("invalid Python: {}", path, "correct the recipe", kinds):
        return ast.parse(recipe.decode())


@lru_cache
def _meaning(recipe: bytes, path: Path) -> bytes:
    return json.dumps(_program(_parsed(recipe, path))).encode()


def _program(part: Any) -> Any:
    """Return what a program does, the same for all versions of Python: no layout, no docstring."""
    if isinstance(part, ast.AST):
        fields = {name: _program(value) for name, value in ast.iter_fields(part) if name != "kind"}
        return [type(part).__name__, {name: value for name, value in fields.items() if value}]
    if isinstance(part, list):
        return [_program(each) for each in part if not _is_text(each)]
    return None if part is None else repr(part)


def _is_text(part: object) -> bool:
    """Return whether a part of a recipe is for its readers only."""
    match part:
        case ast.keyword(arg="msg" | "description"):
            return True
        case (
            ast.Expr(value=ast.Constant() | ast.Call(func=ast.Name(id="license" | "maintainers")))
            | ast.Assign(targets=[ast.Name(id="homepage")])
        ):
            return True
    return False


def _sources_of(manifest: Manifest, package: str) -> list[Path]:
    """Return the sources of a package that is built from this repository: what the first names."""
    found = [file for each in _SOURCES.get(package, ()) for file in manifest.root.glob(each)]
    named = found[0].read_text() if found else ""
    return [file for file in found if f'"{file.name}"' in named]


def _configured(data: Any) -> str:
    """Return the digest of what a file of configuration says, without comments; empty for none."""
    text = json.dumps(_relevant(data), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() if text != "{}" else ""


def _relevant(data: Any, key: str = "") -> Any:
    """Return what a solve reads under a key; the lists that have no order are sorted."""
    if isinstance(data, list):
        parts = [_relevant(each, key) for each in data]
        return sorted(parts, key=repr) if key in _RULES["sets"] else parts
    if not isinstance(data, dict):
        return data
    read = {
        name: part
        for name, each in data.items()
        if name not in _RULES["sections" if key in ("", "spack") else "keys"]
        if key != "config" or name == "deprecated"
        # A definition is a mapping of a name to a list.
        if (part := _relevant(each, key if key in _RULES["sets"] else name.rstrip(":"))) != {}
    }
    # The first repository with a recipe wins, so their order counts.
    return list(read.items()) if key == "repos" else read


def assigned(path: Path) -> dict[str, str]:
    """Return the variables of a file of the shell; raise ``BusbarError`` if it is invalid."""
    hint = "write NAME=VALUE in each line"
    with value_error("cannot be read: {}", path, hint, (OSError, ValueError)):
        lines = shlex.split(read_text(path, _MOST_BYTES), comments=True)
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _text(path: Path, sources: Iterable[Path] = ()) -> str:
    """Return the digest of what a file says, without the right sums of sources in a recipe."""
    text = path.read_bytes()
    if path.suffix == ".py":
        text = _meaning(text, path)
    for source in sources:  # they are inputs themselves
        text = text.replace(hashlib.sha256(source.read_bytes()).hexdigest().encode(), b"")
    return hashlib.sha256(text).hexdigest()
