# SPDX-License-Identifier: MIT
"""The page of the environment variables."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from .markdown import plain, table

ROOT = Path(__file__).resolve().parents[2]
CODE = ("busbar", "reframe_checks", "containers", "ci", "site", ".ci", "tests", "Makefile")
ENVIRONMENT_INTRO = """\
# Environment variables

These change what Busbar does. For the variables that a fabric needs, see `busbar site env NAME`.
"""


def environment_page() -> str:
    """Every variable that the code reads, with its entry in environment.yaml."""
    meanings = yaml.safe_load(Path(__file__).with_name("environment.yaml").read_text("utf-8"))
    read = set(variables_read())
    if unknown := read - {name for group in meanings.values() for name in group}:
        sys.exit(f"describe in ci/docs/environment.yaml: {', '.join(sorted(unknown))}")
    lines = [ENVIRONMENT_INTRO]
    for title, group in meanings.items():
        if unused := group.keys() - read:
            sys.exit(f"ci/docs/environment.yaml: nothing reads {', '.join(sorted(unused))}")
        lines += [f"## {title}", ""]
        rows = ((f"`{name}`", plain(text)) for name, text in group.items())
        lines += table(("variable", "meaning"), rows)
    return "\n".join(lines)


def variables_read() -> Iterator[str]:
    """The variables that the code reads."""
    for part in CODE:
        for path in sorted([ROOT / part, *(ROOT / part).rglob("*")]):
            name = path.relative_to(ROOT).as_posix()
            own = name.startswith(("tests/data", "tests/docs", "ci/docs"))
            if own or not path.is_file() or path.suffix == ".pyc":
                continue
            text = path.read_text(encoding="utf-8", errors="ignore")
            yield from re.findall(r"\bBUSBAR_[A-Z_]*[A-Z]\b", text)
            # The programs in src/ read what launchers set for each rank.
            if "environ" in text and re.fullmatch(r"(busbar/.*|reframe_checks/\w+)\.py", name):
                yield from _python_reads(ast.parse(text), name)


def _python_reads(tree: ast.Module, file: str) -> Iterator[str]:
    """The names for which ``os.environ`` is asked, read or set by default."""
    for node in ast.walk(tree):
        keys: list[ast.expr] = []
        if isinstance(node, ast.Subscript) and _is_environ(node.value):
            keys = [node.slice]
        elif isinstance(node, ast.Compare) and _is_environ(node.comparators[0]):
            keys = [node.left]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if _is_environ(node.func.value) and method in ("get", "setdefault"):
                keys = node.args[:1]
        for key in keys:
            names = _names(key, tree)
            if not names:
                sys.exit(f"{file}:{node.lineno}: cannot tell which variable is read")
            yield from names


def _is_environ(node: ast.expr) -> bool:
    return ast.unparse(node) == "os.environ"


def _names(key: ast.expr, tree: ast.Module) -> list[str]:
    """The strings that an expression stands for: itself, or what a loop or an argument gives."""
    if isinstance(key, ast.Constant):
        return [str(key.value)]
    values: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and _same(node.target, key):
            values.append(node.iter)
        elif isinstance(node, ast.Assign) and _same(node.targets[0], key):
            values.append(node.value)
    names: list[str] = []
    for node in (node for value in values for node in ast.walk(value)):
        if isinstance(node, ast.Name) and not _same(node, key):
            names += _names(node, tree)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[A-Z][A-Z0-9_]+", str(node.value)):
            names.append(node.value)
    return names


def _same(target: ast.expr, key: ast.expr) -> bool:
    return ast.unparse(target) == ast.unparse(key)
