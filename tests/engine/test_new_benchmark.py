# SPDX-License-Identifier: MIT
"""A new benchmark is one directory and one check file, and each part that it lacks is named.

In a copy of the tree an invented benchmark, ``copybench``, is added as CONTRIBUTING.md says. Its
program is a double: a script that prints what such a benchmark would print.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from busbar.engine.tool import tools
from busbar.expect import COLLECTIVES
from tests.cases import sampled
from tests.said import ran

HERE = Path(__file__).parent / "copybench"
PARTS = sorted(path.name for path in (HERE / "tool").iterdir() if path.is_file())


def test_the_engine_names_no_tool(root: Path) -> None:
    names: set[str] = set()
    for package, tool in tools().items():
        names |= {package, *tool.benches, *tool.outputs, *tool.programs.names}
    # Collectives are operations, and memory is a word.
    words = {name.strip("_*") for name in names} - {*COLLECTIVES, "memory"}
    assert {"osu", "gpu_aware", "nccl-tests", "ncclras", "ucx_perftest"} < words
    words |= {word.replace("_", "-") for word in words} | {'"memory"', "``memory``"}
    either = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    named = re.compile(rf"(?i)(?<![A-Za-z_])(?:{either})(?![A-Za-z_])")
    lines = [
        (path.name, line)
        for path in (root / "busbar/engine").glob("*.py")
        for line in path.read_text().splitlines()
    ]
    assert [line for line in lines if named.search(line[1])] == []


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with the directory of the tool and the file of its check."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("busbar", "reframe_checks", "ci", "site"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / name, copy / name, symlinks=True, ignore=ignored)
    for name in ("tests", "docs/reference", "pyproject.toml", "locks", "requirements.lock"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).symlink_to(root / name)
    shutil.copytree(HERE / "tool", copy / "busbar/tools/copybench")
    shutil.copy(HERE / "check.py", copy / "reframe_checks/copybench.py")
    return copy


def run(tree: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "200"} | variables
    return ran(sys.executable, "-m", *words, cwd=tree, env=environment)


def check(tree: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    prefix = ("--site", "local", "--prefix", str(HERE / "prefix"))
    return run(tree, "busbar", "check", *prefix, "-n", "copybench", *words, **variables)


@pytest.mark.run
def test_it_is_listed(tree: Path) -> None:
    done = check(tree, "--list")
    assert "copybench" in done.stdout, done.stdout + done.stderr


@pytest.mark.run
@sampled(
    2,
    ("mode", "verdict", "says"),
    [
        ("healthy", "pass", ""),
        ("slow", "degraded", "2 GB/s"),
        ("other-size", "failed", "64 KiB was not requested"),
        ("corrupt", "failed", "1 wrong at 1 MiB"),
        ("refused", "failed", "exit status 1"),
    ],
)
def test_it_is_run_judged_and_explained(
    tree: Path, tmp_path: Path, mode: str, verdict: str, says: str
) -> None:
    done = check(tree, "--json", "--output", str(tmp_path), COPYBENCH=mode)
    document = json.loads(done.stdout)
    assert document["verdict"] == verdict, done.stdout + done.stderr
    messages = [row["message"] for row in document["results"]]
    assert any(says in message for message in messages), messages
    causes = [cause["id"] for cause in document["causes"]]
    assert ("copybench-no-memory" in causes) == (mode == "refused"), causes


def test_its_message_is_explained(tree: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("copybench 0.1\ncopybench: no memory for 1048576 bytes\nexit_status=1\n")
    document = json.loads(run(tree, "busbar", "explain", "--json", str(log)).stdout)
    (explained,) = document.get("runs", [document])
    assert [cause["id"] for cause in explained["causes"]] == ["copybench-no-memory"]


@pytest.mark.run
def test_it_is_documented(tree: Path, tmp_path: Path) -> None:
    done = run(tree, "ci.docs.reference", str(tmp_path))
    assert done.returncode == 0, done.stderr
    pages = {path.name: path.read_text() for path in tmp_path.rglob("*.md")}
    assert "Does a copy reach" in pages["checks.md"]
    assert "| `copybench` | the invented benchmark |" in pages["checks.md"]
    assert "copybench-no-memory" in "".join(pages.values())


WITHOUT = """
import shutil, sys
from pathlib import Path
from busbar.errors import BusbarError

here, kept = map(Path, sys.argv[1:3])
for part in sys.argv[3:]:
    (here / part).unlink()
    for name in [name for name in sys.modules if name.startswith("busbar.tools")]:
        del sys.modules[name]
    try:
        import busbar.tools
    except BusbarError as error:
        print(part, error)
    shutil.copy(kept / part, here / part)
"""


def test_a_missing_part_is_named(tree: Path) -> None:
    here = tree / "busbar/tools/copybench"
    (tree / "without.py").write_text(WITHOUT)
    done = run(tree, "without", str(here), str(HERE / "tool"), *PARTS)
    named = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    assert set(named) == set(PARTS), done.stderr
    for part, says in named.items():
        assert f"the tool copybench has no part {part}" in says
    (here / PARTS[0]).unlink()
    done = run(tree, "busbar", "explain", str(here))
    shutil.copy(HERE / "tool" / PARTS[0], here / PARTS[0])
    assert (done.returncode, "has no part" in done.stderr) == (2, True)
