# SPDX-License-Identifier: MIT
"""Run the tests on small changes of the code, and list the changes that no test notices.

    tests/bench/mutants.py [--count 100] [--seed 1] [busbar/engine=tests/engine,tests/reframe ...]

mutmut leaves constants of modules alone, and cosmic-ray starts Python and all tests again for each
change. Both are too slow or too blind here, where constants of modules decide verdicts.

Changes are made in a copy of the tree. Each is first given to the test files that import its
module, then to the other tests of its package that run the changed function, as their coverage
shows. A process with all libraries loaded forks for each.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from coverage import CoverageData

# What is changed, and the tests that have to notice.
TARGETS = {
    "busbar/engine": "tests/engine,tests/reframe,tests/replay,tests/explain,tests/test_screen.py",
    "busbar/expect": "tests/expect,tests/site/test_site_lint.py",
    "busbar/cluster/sweep": "tests/cluster",
    "busbar/history": "tests/history,tests/report",
}
LIBRARIES = (
    *("ClusterShell.NodeSet", "jinja2", "jsonschema", "numpy"),
    *("prometheus_client", "pydantic", "pytest", "re2", "reframe.core.runtime", "rich.console"),
)
CPU_SECONDS = 400  # what takes longer loops: the slowest set of tests takes a quarter
_COVERAGE = ("--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0")
_PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn)),
    *((ast.Is, ast.IsNot), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)),
)
SWAPPED: dict[type[ast.AST], type[Any]] = dict(_PAIRS) | {b: a for a, b in _PAIRS}


class Mutant(NamedTuple):
    """One change: the expression at a position, and what replaces it."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split())[:60] for text in (self.old, self.new))
        return f"{self.file}:{self.line}: {old} -> {new}"


def changed(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions of a node that can change, each with its new text."""
    match node:
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Constant(value=float(value)) if value:
            yield node, str(value * 2)
            yield node, str(value / 10)
        case ast.Compare(left, [operator], others):
            yield node, ast.unparse(ast.Compare(left, [SWAPPED[type(operator)]()], others))
        case ast.BoolOp(op=operator):
            yield node, ast.unparse(ast.BoolOp(SWAPPED[type(operator)](), node.values))
        case ast.BinOp(op=operator) if type(operator) in SWAPPED:
            yield node, ast.unparse(ast.BinOp(node.left, SWAPPED[type(operator)](), node.right))
        case ast.UnaryOp(op=ast.Not()):
            yield node, ast.unparse(node.operand)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield value, "None"
        case ast.If(test=test) if ast.unparse(test) != "TYPE_CHECKING":
            yield test, "False"


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below one, except for annotations and formatted text."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                    yield from walk(child)


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every change of a file."""
    text = path.read_bytes()
    starts = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    for node in walk(ast.parse(text)):
        for place, new in changed(node):
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset  # type: ignore[operator]
            yield Mutant(str(path), place.lineno, start, end, text[start:end].decode(), f"({new})")


def importers(tests: Sequence[str], file: str) -> list[str]:
    """Return the test files that import a module by name."""
    package, name = file.removesuffix(".py").replace("/", ".").rsplit(".", 1)
    words = (f"{package}.{name}", f"from {package} import {name}")
    files = [Path(test) for test in tests if test.endswith(".py")]
    files += [path for test in tests for path in sorted(Path(test).rglob("test_*.py"))]
    return [str(path) for path in files if any(word in path.read_text() for word in words)]


def covering(mutant: Mutant, tests: Sequence[str]) -> list[str]:
    """Return the tests that run the changed function, and all where it is in none."""
    functions = [
        node
        for node in ast.walk(ast.parse(Path(mutant.file).read_text()))
        if isinstance(node, ast.FunctionDef)
        and node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    if not functions:
        return list(tests)
    inner = functions[-1]  # the walk is from the outside to the inside
    data = CoverageData(".coverage")
    data.read()
    contexts = data.contexts_by_lineno(str(Path(mutant.file).resolve()))
    lines = range(inner.body[0].lineno, (inner.end_lineno or 0) + 1)
    names = {name.rsplit("|", 1)[0] for line in lines for name in contexts.get(line, ())}
    return sorted(name for name in names if name.startswith(tuple(tests)))


def run(tests: Sequence[str], *options: str, seconds: int = CPU_SECONDS) -> int:
    """Run tests in a fork of this process; return the exit status, negative for a signal."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.dup2(os.open("pytest.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        fixed = ["-q", "-pno:cacheprovider", "--hypothesis-seed=0", "--timeout=600"]
        fixed += ["-m", "not run and not lab", "--basetemp=basetemp", *options, *tests]
        os._exit(int(import_module("pytest").main(fixed)))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def judged(mutant: Mutant, tests: Sequence[str], failing: Sequence[str]) -> str:
    """Return what the tests make of a change: killed, timeout or survived."""
    path, near = Path(mutant.file), importers(tests, mutant.file)
    others = [test for test in covering(mutant, tests) if test.split("::")[0] not in near]
    text, times = path.read_bytes(), path.stat()
    path.write_bytes(text[: mutant.start] + mutant.new.encode() + text[mutant.end :])
    skipped = [f"--deselect={test}" for test in failing]
    rest = [f"--ignore={test}" for test in near]
    try:
        for chosen, options in ((near, []), (others, rest)):
            status = run(chosen, "-x", *skipped, *options) if chosen else 0
            if status == 4:  # pytest does not find a test: the change gave its cases other names
                whole = sorted({test.split("::")[0] for test in chosen})
                status = run(whole, "-x", *skipped, *options)
            if status not in {0, 5}:  # 5: no tests
                return "killed" if status > 0 else "timeout"
        return "survived"
    finally:
        path.write_bytes(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def main() -> None:
    """Run a sample of all changes and print the score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", default=time.strftime("%Y%m%d"))
    parser.add_argument("targets", nargs="*", help="DIRECTORY=TESTS,...")
    options = parser.parse_args()
    targets = dict(word.split("=") for word in options.targets) or TARGETS
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as copy:
        for name in filter(os.path.isfile, listed.stdout.split("\0")):
            (Path(copy) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, Path(copy) / name)
        os.chdir(copy)
        os.environ |= {"PYTHONPATH": copy, "PYTHONDONTWRITEBYTECODE": "1"}
        sys.path[0], sys.dont_write_bytecode = copy, True
        for library in LIBRARIES:
            import_module(library)
        chosen: list[tuple[Mutant, list[str]]] = []
        for directory, tests in targets.items():
            files = sorted(Path(directory).glob("**/*.py"))
            found = [(mutant, tests.split(",")) for path in files for mutant in mutants(path)]
            print(f"{directory}: {len(found)} possible", flush=True)
            chosen += found
        chosen = random.Random(options.seed).sample(chosen, min(options.count, len(chosen)))  # noqa: S311
        print(f"seed {options.seed}: {len(chosen)} mutants", flush=True)
        every = sorted({test for _, tests in chosen for test in tests})
        status = run(every, *_COVERAGE, seconds=10 * CPU_SECONDS)
        log = Path("pytest.log").read_text()
        if status not in {0, 1}:  # every change would seem to be noticed
            sys.exit(f"pytest ends with {status} without a change: {log}")
        failing = [row.split()[1] for row in log.splitlines() if row.startswith(("FAILED", "ERR"))]
        print(*[f"fails without a change: {test}" for test in failing], sep="\n")
        count: Counter[str] = Counter()
        for mutant, tests in chosen:
            outcome = judged(mutant, tests, failing)
            count[outcome] += 1
            print(f"{outcome:<9}{mutant}", flush=True)
        print(f"{count.total() - count['survived']} of {count.total()} noticed: {dict(count)}")


if __name__ == "__main__":
    main()
