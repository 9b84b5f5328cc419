# SPDX-License-Identifier: MIT
"""The documents that commands print are as their schemas in docs/reference/schemas/ say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from busbar.cli import EXIT_USAGE, main
from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.explain import explain
from tests.cases import cases, some

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SCHEMAS = {path.stem: path for path in (ROOT / "docs/reference/schemas").glob("*.json")}
# The bounds of 64 ranks of MI300X take seconds.
LOGS = sorted({*DATA.glob("*/*.log")} - {*DATA.glob("mi300x*/*.log")})


def strict(schema: Any) -> Any:
    """The schema, with each key refused that it does not describe."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return closed | {key: strict(value) for key, value in schema.items()}


def validate(name: str, document: Any) -> None:
    """Raise ``ValidationError`` unless ``document`` has only what the schema describes."""
    schema = json.loads(SCHEMAS[name].read_text())
    Draft202012Validator(strict(schema)).validate(document)


def printed(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    """The JSON document that a command prints."""
    assert main(words) != EXIT_USAGE
    return json.loads(capfd.readouterr().out)


@cases("name", SCHEMAS)
def test_a_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(json.loads(SCHEMAS[name].read_text()))


def test_explain() -> None:
    documents = []
    for path in some(LOGS, 4):
        try:
            documents += [to_json(each) for each in explain([path])]
        except BusbarError:
            continue  # outputs of tools that describe a machine
    assert len(documents) > 20
    assert any(document["causes"] and document["notes"] for document in documents)
    validate("busbar-explain-1", json.loads(json.dumps(documents)))


def test_explain_of_one_run_is_an_object(capfd: pytest.CaptureFixture[str]) -> None:
    document = printed(capfd, "explain", "--json", str(DATA / "h200x4/osu_bibw_healthy.log"))
    assert document["schema"] == "busbar-explain/1"
    validate("busbar-explain-1", document)


@pytest.mark.parametrize(
    "words",
    [
        ("h200x4", "--bench", "osu_bw"),
        ("h200x4", "--bench", "osu_latency", "--from", "0", "--to", "1"),
        ("h200x4", "--bench", "all_reduce"),
        ("mi300x", "--bench", "osu_bibw"),
        ("p4d", "--bench", "all_reduce", "--nodes", "2"),
    ],
)
def test_expect(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    document = printed(capfd, "expect", "--json", "--site", *words)
    assert document["schema"] == "busbar-expect/1"
    validate("busbar-expect-1", document)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("site-list", ("site", "list")),
        ("site", ("site", "show", "p5")),
        ("site", ("site", "show", "mi250x-cray")),
        ("site", ("site", "detect")),
        ("site-env", ("site", "env", "p5")),
        ("site-compare", ("site", "detect", "--compare", "h200x4")),
        pytest.param(
            *("check-list", ("check", "--list", "--site", "h200x4")), marks=pytest.mark.run
        ),
    ],
)
def test_other_documents(
    name: str,
    words: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    document = printed(capfd, *words, "--json")
    assert document
    validate(f"busbar-{name}-1", document)


def test_site_lint(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.yaml").write_text("name: broken\n")
    findings = printed(capfd, "site", "lint", str(tmp_path), "--json")
    assert findings
    validate("busbar-site-lint-1", findings)


def test_preflight(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "usr").mkdir()
    document = printed(capfd, "preflight", str(tmp_path), "--site", "local", "--json")
    assert document["schema"] == "busbar-preflight/1"
    validate("busbar-preflight-1", document)


@pytest.mark.run
def test_check(tmp_path: Path) -> None:
    """A run with a failed result, a cause, a skipped check and notes."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "busbar", "check", "--site", "local", "--json"),
            *("--output", tmp_path, "-n", "^link_matrix|^xccl$", "--max-retries", "0"),
            *("-S", "link_matrix.more_options=--seconds=0.02 --inject=die"),
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    document = json.loads(done.stdout)
    assert document["schema"] == "busbar-check/1"
    assert document["causes"]
    assert document["notes"]
    validate("busbar-check-1", document)
    assert document == json.loads((tmp_path / "results.json").read_text())


@pytest.mark.parametrize(
    "wrong",
    [{"schema": "busbar-expect/2"}, {"undescribed": 1}, {"proof": "perhaps"}, {"sources": None}],
)
def test_another_document_is_refused(
    wrong: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    document = printed(capfd, "expect", "--json", "--site", "p5", "--bench", "all_reduce")
    with pytest.raises(ValidationError):
        validate("busbar-expect-1", document | wrong)
