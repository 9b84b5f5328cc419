# SPDX-License-Identifier: MIT
"""Documents of others: each wrong value is one error that names file and key, in bounded time."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from busbar.check.snapshot import read
from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.document import read_document
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.verdict import Verdict
from tests.every_field import edits, filled
from tests.said import Command

CHECK = filled(CheckDocument, "x") | {"time": "2026-11-22T03:12:00+00:00", "site": "h200x4"}


def wrong_key(edit: str) -> str:
    """The key of an edit without the places in lists."""
    return next(
        word for word in reversed(edit.partition(" = ")[0].split(".")) if not word.isdigit()
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [CheckDocument, Analysis, SweepRun])
def test_a_report_of_each_edit_ends(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busbar: Command
) -> None:
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "none"))
    results, file = tmp_path / "results.json", tmp_path / "edited.json"
    results.write_text(json.dumps(CHECK))
    document, command = CHECK, ("report --mail", file)
    if kind is not CheckDocument:
        document, command = (
            filled(kind, "x"),
            ("report --output", tmp_path / "o", results, "--sweep", file),
        )
    file.write_text(json.dumps(document))
    assert busbar(*command).status == 0
    wrong, before = [], resource.getrusage(resource.RUSAGE_SELF)
    refused = 0
    for what, edited in edits(document):
        file.write_text(json.dumps(edited))
        said = busbar(*command)
        refused += said.status == 2
        one = said.err.count("\n") == 1 and f"{file}: " in said.err and wrong_key(what) in said.err
        if said.status not in (0, 2) or (said.status == 2 and not one) or "internal" in said.err:
            wrong.append((what, said.status, said.err))
        if "= 'nan'" in what and "details" not in what and said.status == 0:
            wrong.append((what, "is accepted", ""))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused > 100
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 60
    assert after.ru_maxrss - before.ru_maxrss < 500_000  # KiB


@pytest.mark.parametrize("kind", [NightlyDocument])
def test_an_edit_is_read_or_named(kind: Any, tmp_path: Path) -> None:
    file, document = tmp_path / "edited.json", filled(kind, "x")
    file.write_text(json.dumps(document))
    assert read_document(file, "", kind)
    refused = {}
    for what, edited in edits(document):
        file.write_text(json.dumps(edited))
        try:
            read_document(file, "", kind)
        except BusbarError as error:
            refused[what] = error
    assert len(refused) > 50
    assert {error.where for error in refused.values()} == {str(file)}
    assert not [what for what, error in refused.items() if wrong_key(what) not in error.what]


@pytest.mark.parametrize(
    "row",
    [
        {"gb_per_s": 1e300},
        {"gb_per_s": 11.0, "limit": 10.0},
        {"gb_per_s": 4.0, "low": 5.0, "high": 9.0, "limit": 10.0},
        {"gb_per_s": -1.0},
        {"metric": "latency", "us": 0.008},
        {"metric": "latency", "us": 9.0, "low": 1.0, "high": 5.0, "limit": 0.5},
        {"metric": "latency", "us": 0.4, "low": 1.0, "high": 5.0, "limit": 0.5},
    ],
)
def test_a_pass_beside_its_own_bounds_is_not_believed(row: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    nothing = dict.fromkeys(("us", "gb_per_s", "limit", "low", "typical", "high"))
    result = CHECK["results"][0] | {"metric": "bandwidth"} | nothing | row
    file.write_text(json.dumps(CHECK | {"results": [result]}))
    (read_row,) = read(file).outcomes[0].results
    assert read_row.verdict is Verdict.FAILED
    assert read_row.message.startswith("the file says pass")
