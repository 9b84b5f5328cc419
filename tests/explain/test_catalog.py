# SPDX-License-Identifier: MIT
"""A cause or note is declared in one place: its rule, and its entry in causes.yaml."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from busbar.engine.patterns import Patterns
from busbar.explain import catalog
from busbar.explain.rulebook import PATTERNS
from busbar.parse.messages import pattern
from tests.said import ran

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "busbar").rglob("*.py"), *(ROOT / "reframe_checks").rglob("*.py")])
_OF_NOTES = re.compile(r"\bNote\(|\"summary\"|\.(?:seen|first|values)\(")
"""What is in every module of which these tests look at the code."""


@cache
def parsed() -> dict[Path, ast.Module]:
    texts = {path: path.read_text() for path in SOURCES}
    return {path: ast.parse(text) for path, text in texts.items() if _OF_NOTES.search(text)}


NEW_CAUSE = '''
from busbar.parse.messages import pattern


@cause(
    "gpu-on-fire",
    fatal=True,
    patterns=[
        pattern(
            "gpu.fire",
            "is on fire",
            r"^GPU (?P<gpu>\\d+) is on fire at (?P<celsius>\\d+) C",
            info=["GPU "],
        )
    ],
)
def gpu_on_fire(context: Context) -> Iterator[Finding]:
    """A GPU reports a fire."""
    if fire := context.facts.first("gpu.fire"):
        yield failure(f"{fire['celsius']} C on GPU {fire['gpu']}", fire)
'''
NEW_NOTE = """
from busbar.parse.messages import pattern


@note("gpu-warm", patterns=[pattern("gpu.warm", "is warm", r"GPU (?P<gpu>\\d+) is warm")])
def _warm(context: Context) -> Iterator[Note]:
    for warm in context.facts.seen("gpu.warm"):
        yield Note("gpu-warm", f"GPU {warm['gpu']} is warm", (warm.evidence,))
"""
CAUSE_ENTRY = """causes:
  gpu-on-fire:
    meaning: A GPU burns.
    remedy: Leave the building.
"""
NOTE_ENTRY = """notes:
  gpu-warm: A GPU is warm.
"""
OUTPUT = """\
# OSU MPI-CUDA Bandwidth Test v7.4
# Size      Bandwidth (MB/s)
n1:1:1 [0] NCCL INFO GPU 3 is on fire at 451 C
GPU 5 is warm
MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, and of what writes its pages."""
    caches = shutil.ignore_patterns("__pycache__")
    for name in ("busbar", "site", "ci"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=caches)
    return tmp_path


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def enter(tree: Path, section: str, text: str) -> None:
    """Adds an entry at the beginning of a section of causes.yaml."""
    path = tree / "busbar/explain/causes.yaml"
    before, after = path.read_text().split(f"\n{section}:\n")
    path.write_text(f"{before}\n{text}{after}")


def python(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, *words, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)})


@pytest.mark.run
def test_a_new_cause_and_a_new_note_take_two_edits_each(tree: Path) -> None:
    append(tree / "busbar/explain/rules_machine.py", NEW_CAUSE)
    enter(tree, "causes", CAUSE_ENTRY)
    append(tree / "busbar/explain/notes.py", NEW_NOTE)
    enter(tree, "notes", NOTE_ENTRY)

    (tree / "job.log").write_text(OUTPUT)
    explained = "from busbar.cli import main; print(main(['explain', '--json', 'job.log']))"
    pages = "from ci.docs.pages import causes_page; print(*causes_page())"
    order = "from busbar.explain import rulebook; print(rulebook.RULES[0].__name__)"
    done = python(tree, "-c", f"{explained}; {pages}; {order}")
    assert (done.returncode, done.stderr) == (0, "")
    output, page = done.stdout.split("\n1\n", 1)
    document = json.loads(output)
    # The abort is a consequence of the fire, and not named.
    assert [cause["id"] for cause in document["causes"]] == ["gpu-on-fire"]
    assert document["causes"][0]["summary"] == "451 C on GPU 3"
    assert document["causes"][0]["remedy"] == "Leave the building."
    assert "GPU 5 is warm" in [n["summary"] for n in document["notes"] if n["id"] == "gpu-warm"]

    assert "| [`gpu-on-fire`](#gpu-on-fire) | A GPU burns. |" in page
    assert "**Remedy:** Leave the building." in page
    assert "**Hides:** `launch-failed`, `rank-died`, `job-cancelled`" in page
    assert "| `gpu-warm` | A GPU is warm. |" in page
    assert page.endswith("\ngpu_on_fire\n")


def test_half_a_cause_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rulebook makes its rules at import."""
    with monkeypatch.context() as half:
        half.setitem(catalog._hidden, "gpu-on-fire", set())
        with pytest.raises(ValueError, match=r"causes\.yaml has no entry for gpu-on-fire"):
            catalog.rules()
    monkeypatch.setitem(catalog.CAUSES, "gpu-on-fire", catalog.CAUSES["gpu-fault"])
    with pytest.raises(ValueError, match=r"no rule names gpu-on-fire of causes\.yaml"):
        catalog.rules()


def test_causes_of_a_tool_are_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"meaning": "x", "remedy": "y"}
    own = {"causes": {"a": entry, "b": entry}, "notes": {}}
    tool = {"t": {**entry, "before": "b"}, "u": entry}
    monkeypatch.setattr(catalog, "load_all", lambda _: [own, tool])
    assert list(catalog._load()[0]) == ["a", "t", "u", "b"]
    monkeypatch.setattr(catalog, "load_all", lambda _: [own, {"a": entry}])
    with pytest.raises(ValueError, match=r"two causes.yaml have an entry for a"):
        catalog._load()
    assert any((ROOT / "busbar/tools").glob("*/causes.yaml"))


def test_what_each_cause_hides() -> None:
    assert catalog.hidden_by("gpu-driver-missing") == {
        "job-cancelled", "launch-failed", "library-missing", "too-few-gpus", "rank-died",
        "truncated-output",
    }  # fmt: skip
    assert not catalog.hidden_by("host-staging")


def note_ids(tree: ast.Module) -> Iterator[str]:
    """The ids of the notes that a module makes; a name is a constant of the module."""
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Note"), args=[ast.Constant(value=str(id_)), *_]):
                yield id_
            case ast.Call(func=ast.Name(id="Note"), args=[ast.Name(id=name), *_]):
                yield constants[name]
            case ast.Call(func=ast.Name(id="Note")):
                pytest.fail(f"line {node.lineno}: the id of a note is a literal")


def test_every_note_is_in_the_catalogue_and_made_somewhere() -> None:
    made = {id_ for tree in parsed().values() for id_ in note_ids(tree)}
    assert made == set(catalog.NOTES)


def test_notes_are_no_bare_dicts() -> None:
    """Such a dict would bypass the catalogue."""
    for path, tree in parsed().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                own = path.name in ("note.py", "model.py")
                assert own or not keys >= {"id", "summary"}, f"{path}:{node.lineno}"


# ---- kinds and fields of messages
NOTED = {
    "nccl.warn": {"text"},
    "tests.failure": {"text"},
    "tests.nccl": {"headers", "library"},
    "osu.ranks": {"ranks"},
    "event.odd": set(),
    "ras.behind": {"rank", "operation", "count", "most"},
    "died.ras": {"text"},
}
"""Messages that the readers of tables and of JSON add."""


def kinds() -> dict[str, set[str]]:
    """Fields by kind. The patterns of one kind have the same fields."""
    every = Patterns(PATTERNS)
    fields: dict[str, set[str]] = {}
    for row in (*every.warnings, *every.unprefixed):
        names = set(row.regex.groupindex)
        assert fields.setdefault(row.kind, names) == names, row.kind
    return fields | NOTED


def test_rules_read_kinds_and_fields_that_exist() -> None:
    fields = kinds()
    read = 0
    for path, tree in parsed().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="seen" | "first" | "values"),
                    args=[ast.Constant(value=str(kind)), *rest],
                ):
                    assert kind in fields, f"{path}:{node.lineno}: {kind}"
                    read += 1
                    for name in rest:
                        if isinstance(name, ast.Constant):
                            assert name.value in fields[kind], f"{path}:{node.lineno}"
    assert read > 100


def test_a_pattern_needs_names_and_whole_heads() -> None:
    with pytest.raises(ValueError, match="every group needs a name"):
        pattern("x", "a", r"(a)")
    with pytest.raises(ValueError, match="a head has 1 or 4 bytes"):
        pattern("x", "a", info=["NE"])


def test_every_info_pattern_is_found_by_its_head() -> None:
    every = Patterns(PATTERNS)
    for row in (*every.warnings, *every.unprefixed):
        for head in row.info:
            assert row in every.by_head[head]
