# SPDX-License-Identifier: MIT
"""The page of site.yaml."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from busbar.site.family import Family, LinkClasses
from busbar.site.model import Site

from .schemas import schema_of, schema_tables

ROOT = Path(__file__).resolve().parents[2]
SITE_INTRO = """\
# Keys of site.yaml

`site/NAME/site.yaml` holds the keys of [Site](#site). Keys that it leaves out come from the key
`site` of its family, and its node types from the site that `nodes_like` names. Unknown keys are
refused. `busbar site lint NAME` checks a site. A bandwidth is in GB/s, 1e9 bytes per second.
"""


def site_page() -> str:
    """Every key of site.yaml, of a family and of links.yaml; then the rules."""
    done: set[str] = set()
    lines = [SITE_INTRO]
    for title, model in (
        ("site/NAME/site.yaml", Site),
        ("site/_families/FAMILY.yaml", Family),
        ("site/_families/links.yaml", LinkClasses),
    ):
        lines += [
            f"## {title}",
            "",
            *schema_tables(schema_of(model, "validation"), model.__name__, done),
        ]
    return "\n".join([*lines, *_rules()])


def _rules() -> Iterator[str]:
    yield from (
        "## Rules",
        "",
        "Besides wrong types, these are refused. A word in italics stands for what the file says.",
        "",
    )
    rules = [text for name in ("model", "gate", "family") for text in _refusals(name)]
    yield from (f"- {text}" for text in dict.fromkeys([*rules, *_lint_rules()]))
    yield "- a reference whose reading is above the physical limit"


def _refusals(module: str) -> Iterator[str]:
    tree = ast.parse((ROOT / "busbar" / "site" / f"{module}.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ValueError":
            yield from filter(None, [_literal(node.args[0], {})])


def _lint_rules() -> Iterator[str]:
    files = [ROOT / "busbar" / "expect" / f"{name}.py" for name in ("lint", "lint_nodes")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    for function in (function for tree in trees for function in tree.body):
        assigned = {
            node.targets[0].id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
                rule, hint = (_literal(part, assigned) for part in node.value.elts[-2:])
                if rule and hint:
                    yield f"{rule}; {hint}"


def _literal(node: ast.expr, assigned: Mapping[str, ast.expr]) -> str:
    """A string of the code, with names for what is put into it; empty for anything else."""
    if isinstance(node, ast.Name):
        return _literal(assigned[node.id], {}) if node.id in assigned else ""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part, {}) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"*{re.findall('[A-Za-z_]+', ast.unparse(node.value))[-1]}*"
    return ""
