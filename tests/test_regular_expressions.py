# SPDX-License-Identifier: MIT
"""Groups of regular expressions are read by name."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from busbar.parse.tables import load_yaml
from tests.cases import cases
from tests.files import syntax

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "busbar").rglob("*.py"), *(ROOT / "reframe_checks").rglob("*.py")])
_FUNCTIONS = {"compile", "match", "search", "fullmatch", "findall", "finditer", "sub", "split"}
_MATCHING = {"match", "search", "fullmatch", "finditer"}
_GROUP = re.compile(r"(?<!\\)(?:\\\\)*\((?!\?)")


def literals(node: ast.AST) -> Iterator[str]:
    """The strings in an expression, with ``x`` for what an f-string fills in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values
        )
    elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        yield node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from literals(child)


def expressions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each regular expression that the module gives to ``re``."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in _FUNCTIONS
            and node.args
        ):
            for text in literals(node.args[0]):
                yield node.lineno, text


def unnamed(expression: str) -> bool:
    """Whether a group of the expression has no name."""
    without_sets = re.sub(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]", "", expression)
    return bool(_GROUP.search(without_sets))


def bound_to_matches(tree: ast.Module) -> set[str]:
    """Names that are assigned a match."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.NamedExpr):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.comprehension):
            targets, value = [node.target], node.iter
        else:
            continue
        call = value.func if isinstance(value, ast.Call) else None
        if isinstance(call, ast.Attribute) and call.attr in _MATCHING:
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def numbered(tree: ast.Module) -> Iterator[int]:
    """Lines that read a group of a match by its number; 0 is the whole match."""
    matches = bound_to_matches(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(number))):
                if name in matches and number:
                    yield node.lineno
            case ast.Call(func=ast.Attribute(attr="groups")):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="group"), args=[ast.Constant(value=int()), *_]):
                yield node.lineno


@cases("path", SOURCES)
def test_groups_have_names(path: Path) -> None:
    tree = syntax(path.read_text())
    assert [(line, text) for line, text in expressions(tree) if unnamed(text)] == []
    assert list(numbered(tree)) == []


def texts(value: object) -> Iterator[str]:
    """The strings in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def test_groups_in_tables_have_names() -> None:
    """Tables of regular expressions are beside the module that reads them."""
    tables = [path for path in SOURCES if (path.with_suffix(".yaml")).exists()]
    found = [load_yaml(path.with_suffix(".yaml")) for path in tables]
    found.append(tomllib.loads((ROOT / "busbar/redact.toml").read_text()))
    wrong = [
        text
        for text in texts(found)
        if re.search(r"\\[dsw]|\(\?[a-zP:=!<]", text) and unnamed(text)
    ]
    assert len(found) > 8
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"a(b)", True),
        (r"a(?:b)(?P<c>d)(?=e)(?<!f)", False),
        (r"a\(b[(]", False),
        (r"[^](]a", False),
        (r"[\](](b)", True),
    ],
)
def test_unnamed_groups_are_found(expression: str, expected: bool) -> None:
    assert unnamed(expression) is expected
    assert (re.compile(expression).groups > len(re.compile(expression).groupindex)) is expected


def test_numbered_groups_are_found() -> None:
    source = "if found := X.match(line):\n    print(found[1], found.group(2), found.groups())\n"
    assert list(numbered(ast.parse(source))) == [2, 2, 2]
