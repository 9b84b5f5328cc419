# SPDX-License-Identifier: MIT
"""An outcome that a check leaves is validated, and belongs to the case that ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from busbar.check.outcome import outcome_of
from busbar.document import to_json
from busbar.engine.results import Outcome, Result
from busbar.verdict import Verdict, exit_status

ROW = Result("x", Verdict.PASS, metric="bandwidth", bytes=1, gb_per_s=1.0)
LEFT = Outcome("x", "ucx-1.14", (ROW,), "gpu", "spack", "spack")
SITE: Any = None


def read(directory: Path, text: str) -> Outcome:
    (directory / "results.json").write_text(text)
    case = {
        **dict.fromkeys(("outputdir", "stagedir"), str(directory)),
        **dict.fromkeys(("name", "display_name"), "x"),
        "partition": "gpu",
        "environ": "spack",
        "result": "pass",
        "fail_phase": None,
    }
    return outcome_of(case, SITE, "ucx-1.14", Path())


def left(**changes: Any) -> str:
    document = to_json(LEFT)
    row = changes.pop("row", {})
    document |= changes
    for each in document["results"]:
        each.update(row)
    return json.dumps(document)


def test_what_a_check_writes_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, left()) == LEFT


def test_an_older_document_is_read(tmp_path: Path) -> None:
    document = json.loads(left())
    for row in document["results"]:
        del row["cpu_wait_share"]
    assert read(tmp_path, json.dumps(document)) == LEFT


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"verdict": "pass"}', "[" * 9999),
        *(left(check="y"), left(partition="other"), left(environment="other"), left(more=1)),
        *(left(row={"verdict": "good"}), left(row={"gb_per_s": "fast"}), left(results=[])),
        *(left(row={"gb_per_s": None}), left(row={"gb_per_s": -1}), left(row={"gb_per_s": 0})),
        *(left(causes=3), left(notes=[1]), left(versions={"mpi": []})),
    ],
)
def test_anything_else_fails(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).verdict is Verdict.FAILED


def test_bands_can_be_required() -> None:
    assert [exit_status(v) for v in (Verdict.PASS, Verdict.UNJUDGED, Verdict.DEGRADED)] == [
        0,
        3,
        1,
    ]
    assert exit_status(Verdict.UNJUDGED, require_bands=True) == 1
    assert exit_status(Verdict.PASS, require_bands=True) == 0
