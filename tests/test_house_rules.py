# SPDX-License-Identifier: MIT
"""Functions, modules and a product that a reader can still take in, and names with one meaning."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from tests.cases import cases
from tests.files import syntax

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for place in ("busbar/**/*.py", "reframe_checks/**/*.py", "ci/**/*.py")
    for path in ROOT.glob(place)
    if ".spack-env" not in path.parts  # Spack links the recipes of an environment there
)
LONGEST_FUNCTION = 60
LONGEST_MODULE = 300
LARGEST_PRODUCT = 40_000
# Modules that may be longer, and why.
TABLES = {"reframe_checks/src/torch_collectives.py": "a program of its own, in one file"}
# What is still too long. A name that no longer is has to go from here.
TO_DO: set[str] = set()

_KEPT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@cache
def parsed(text: str) -> tuple[list[ast.AST], set[int]]:
    """Return functions and classes, and the lines that are no docstring, comment or blank."""
    rows = ["", *text.splitlines()]
    lines = {n for n, row in enumerate(rows) if row.strip() and not row.lstrip().startswith("#")}
    kept, docstrings = [], set[int]()
    for node in ast.walk(syntax(text)):
        if isinstance(node, _KEPT):
            kept.append(node)
        elif isinstance(node, ast.Constant | ast.JoinedStr) and '"""' in rows[node.lineno]:
            # All lines of a text are code.
            lines.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # A docstring, or the one below a field.
            docstrings.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return kept, lines - docstrings


def only_declares(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a list of calls, such as those that declare options."""
    return all(
        isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign) for statement in function.body
    )


def too_long(text: str, name: str) -> Iterator[str]:
    """Yield the module or its functions that are longer than they may be."""
    nodes, lines = parsed(text)
    if len(lines) > LONGEST_MODULE and name not in TABLES:
        yield name
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not only_declares(node):
            own = lines.intersection(range(node.lineno, (node.end_lineno or 0) + 1))
            if len(own) > LONGEST_FUNCTION:
                yield f"{name}::{node.name}"


def test_functions_and_modules_are_short() -> None:
    names = {path: path.relative_to(ROOT).as_posix() for path in FILES}
    assert {"busbar", "reframe_checks", "ci"} == {name.split("/")[0] for name in names.values()}
    found = {each for path, name in names.items() for each in too_long(path.read_text(), name)}
    assert found == TO_DO


def test_the_product_is_small() -> None:
    assert sum(len(parsed(path.read_text())[1]) for path in FILES) <= LARGEST_PRODUCT


def test_each_error_has_a_next_step() -> None:
    """mypy wants a ``hint`` for each; here it is wanted that it says something."""
    empty = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in FILES
        for call in ast.walk(syntax(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("BusbarError", "of_os")
        for given in call.keywords
        if given.arg == "hint" and ast.unparse(given.value) == "''"
    ]
    assert empty == []


def test_no_two_public_classes_have_one_name() -> None:
    """Spack gives the class of a package its name."""
    files = [path for path in FILES if "spack_repo" not in path.parts]
    names = Counter(
        node.name
        for path in files
        for node in parsed(path.read_text())[0]
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()


def test_every_table_is_a_module() -> None:
    assert {path.relative_to(ROOT).as_posix() for path in FILES} >= TABLES.keys()


@cases(
    ("body", "found"),
    [
        ("x = 1\n    if x:\n        pass\n" + "    x = 1\n" * 301, ["m.py", "m.py::f"]),
        ("if x:\n" + "        x = 1\n" * 61, ["m.py::f"]),
        ("if x:\n        pass\n    call(\n" + "        x,\n" * 61 + "    )\n", ["m.py::f"]),
        ("call(x)\n" + "    y = call(x)\n" * 61, []),
        ("if x:\n" + "        # word\n\n" * 301 + "        pass\n", []),
        ('"""\n' + "    word\n" * 301 + '    """\n    return 1\n', []),
    ],
)
def test_what_is_counted(body: str, found: list[str]) -> None:
    assert list(too_long(f"def f():\n    {body}", "m.py")) == found


def test_each_refusal_has_a_row_and_each_row_a_refusal() -> None:
    """What `refused` says is in the table of its module: what is wrong, and the next step."""
    for path in FILES:
        keys = set(re.findall(r'refused\(\s*__file__,\s*"([a-z-]+)"', path.read_text()))
        if not keys:
            continue
        table = yaml.safe_load(path.with_suffix(".yaml").read_text())
        rows = {key for key, row in table.items() if isinstance(row, list) and len(row) == 2}
        assert keys <= rows, (path, keys - rows)
        unused = {key for key in rows if f'"{key}"' not in path.read_text()}
        assert not unused, (path, unused)
