# SPDX-License-Identifier: MIT
"""The files of a recipe, and what they do: without layout, remarks and the order of directives.

Spack's hash of a package takes the code of a recipe's methods as it stands, so that a renamed
variable is a change.
"""

from __future__ import annotations

import ast
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from busbar.errors import value_error

_FREE = ("build_system", "conflicts", "depends_on", "provides", "requires", "variant", "version")
_PLACES = {"license": None, "maintainers": None} | dict.fromkeys(_FREE, 0)
"""Directives that Spack reads in any order; that of patches counts."""


def files(repository: Path, package: str) -> list[Path]:
    """Return what Python runs or a recipe names for a package; empty if there is no recipe."""
    packages = repository / "packages"
    directory = packages / package.replace("-", "_")
    if not (recipe := directory / "package.py").is_file():
        return []
    texts = _texts(recipe.read_bytes(), recipe)
    words = {word for text in texts for word in text.split(".")} | {"package", "__init__"}
    modules = [x for x in repository.rglob("*.py") if packages not in x.parents]
    modules += [x for each in (repository.parent, packages) for x in each.glob("__init__.py")]
    found = [(x, os.path.relpath(x, directory)) for x in directory.rglob("*")]
    found += [(x, os.path.relpath(x, repository)) for x in modules]
    return [
        file
        for file, name in found
        if any(part in text for part in Path(name).parts for text in texts)
        or file.suffix in texts
        or (file.suffix == ".py" and file.stem in words)
        if file.is_file() and file.stat().st_size
    ]


@lru_cache
def _texts(source: bytes, path: Path) -> frozenset[str]:
    """Return the texts in a recipe, and what it imports."""
    nodes = list(ast.walk(_parsed(source, path)))
    words = [x.value for x in nodes if isinstance(x, ast.Constant)]
    words += [x.module for x in nodes if isinstance(x, ast.ImportFrom)]
    words += [x.name for x in nodes if isinstance(x, ast.alias)]
    return frozenset(word for word in words if word and isinstance(word, str))


def _parsed(source: bytes, path: Path) -> ast.Module:
    with value_error("invalid Python: {}", path, "correct the recipe", (SyntaxError, ValueError)):
        return ast.parse(source.decode("utf-8-sig"))  # a byte order mark is allowed


@lru_cache
def meaning(source: bytes, path: Path) -> bytes:
    """Return what a file does, the same for all versions of Python."""
    return json.dumps(_program(_parsed(source, path))).encode()


def _program(part: Any) -> Any:
    if isinstance(part, ast.AST):
        fields = {name: _program(value) for name, value in ast.iter_fields(part) if name != "kind"}
        return [type(part).__name__, {name: value for name, value in fields.items() if value}]
    if isinstance(part, list):
        each = [(place, _program(x)) for x in part if (place := _place(x)) is not None]
        return [x for _, x in sorted(each, key=lambda x: (x[0], json.dumps(x[1]) * (not x[0])))]
    return None if part is None else repr(part)


def _place(part: object) -> int | None:
    """Return 0 for a part whose place does not count, None for one for readers, else 1."""
    match part:
        case ast.keyword(arg="msg" | "description") | ast.Pass() | ast.Expr(value=ast.Constant()):
            return None
        case ast.Assign(targets=[ast.Name(id="homepage")]):
            return None
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return _PLACES.get(name, 1)
    return int(not isinstance(part, ast.keyword))
