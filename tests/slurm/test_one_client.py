# SPDX-License-Identifier: MIT
"""Only busbar.slurm starts programs of Slurm, and what Busbar starts of itself is its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from busbar.data import PYTHON

ROOT = Path(__file__).parents[2]
PROGRAMS = {"sacct", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun"}
TOPS = ("busbar", "reframe_checks")
NO_START = ("which", "read", "from_text", "getlauncher")
CLIENTS = {
    "busbar/gate/slurm.py": "the gate is a program of its own, of the standard library alone",
    "busbar/preflight/plan.py": "a line for people, and for the launcher of ReFrame",
}


def commands(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first words of calls, lists and tuples, with their lines, but not comparisons."""
    compared = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) not in NO_START
        ):
            words = [each.value if isinstance(each, ast.Starred) else each for each in node.args]
        elif isinstance(node, ast.List | ast.Tuple) and node not in compared:
            words = node.elts
        else:
            continue
        if words and isinstance(words[0], ast.Constant) and isinstance(words[0].value, str):
            yield words[0].lineno, words[0].value


def test_no_other_package_starts_a_program_of_slurm() -> None:
    assert not {
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for top in TOPS
        for path in (ROOT / top).rglob("*.py")
        if path.parent.name != "slurm" and str(path.relative_to(ROOT)) not in CLIENTS
        for text in [path.read_text()]
        if any(f'"{program}"' in text for program in PROGRAMS)
        for line, word in commands(ast.parse(text))
        if word in PROGRAMS
    }


def test_what_busbar_starts_of_itself_imports_nothing_of_the_working_directory() -> None:
    assert PYTHON[1:] == ("-P", "-m")
    sources = [path for top in TOPS for path in (ROOT / top).rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in sources}
    assert not {name for name, text in texts.items() if '"-m", "busbar' in text}
