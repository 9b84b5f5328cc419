# SPDX-License-Identifier: MIT
"""Every answer of the table is given, with all facts that it names."""

from __future__ import annotations

import ast
import string
from pathlib import Path

from busbar.preflight.model import _ANSWERS

PREFLIGHT = Path(__file__).parents[2] / "busbar/preflight"


def facts_of(name: str) -> set[str]:
    fields = (each for text in _ANSWERS[name].values() for each in string.Formatter().parse(text))
    return {field.partition(".")[0] for _, field, _, _ in fields if field}


def test_answers_get_their_facts() -> None:
    given = set()
    for path in PREFLIGHT.glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            nodes = list(ast.walk(function))
            dicts = {
                ast.unparse(node.targets[0]): {ast.literal_eval(key) for key in node.value.keys}
                for node in nodes
                if isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Dict)
                and all(isinstance(key, ast.Constant) for key in node.value.keys)
            }
            words = {each.value for each in nodes if isinstance(each, ast.Constant)}
            given |= words & _ANSWERS.keys()
            for call in nodes:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "answer":
                    facts = set().union(
                        *({k.arg} if k.arg else dicts[ast.unparse(k.value)] for k in call.keywords)
                    )
                    named = {
                        w.value for w in ast.walk(call.args[0]) if isinstance(w, ast.Constant)
                    }
                    for name in named & _ANSWERS.keys():
                        assert facts_of(name) <= facts, (path.name, name)
    assert given == _ANSWERS.keys()
