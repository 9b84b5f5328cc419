# SPDX-License-Identifier: MIT
"""Documents of others: each wrong value is one error that names file and key, in bounded time."""

from __future__ import annotations

import copy
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busbar.check.snapshot import read
from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.document import parse_document, read_document
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.gate.findings import GateDocument
from busbar.verdict import Verdict
from tests.cases import sampled, some
from tests.every_field import edits, filled, places
from tests.said import Command

EDITED = (CheckDocument, Analysis, SweepRun, NightlyDocument)
ENTRIES = {str(n): {"a": 1} for n in range(200_000)}
CHECK = filled(CheckDocument, "x") | {"time": "2026-11-22T03:12:00+00:00", "site": "h200x4"}


def wrong_key(edit: str) -> str:
    """The key of an edit without the places in lists."""
    return next(
        word for word in reversed(edit.partition(" = ")[0].split(".")) if not word.isdigit()
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", EDITED[:3])
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
    for what, edited in some(edits(document), 8):
        file.write_text(json.dumps(edited))
        said = busbar(*command)
        refused += said.status == 2
        one = said.err.count("\n") == 1 and f"{file}: " in said.err and wrong_key(what) in said.err
        if said.status not in (0, 2) or (said.status == 2 and not one) or "internal" in said.err:
            wrong.append((what, said.status, said.err))
        if "= 'nan'" in what and "details" not in what and said.status == 0:
            wrong.append((what, "is accepted", ""))
    assert not wrong, "\n".join(map(str, wrong))
    assert refused > 12
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < 60
    assert after.ru_maxrss - before.ru_maxrss < 500_000  # KiB


@pytest.mark.parametrize("kind", EDITED[3:])
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


@pytest.mark.parametrize("kind", [*EDITED, GateDocument])
def test_many_wrong_entries_are_one_error_soon(kind: Any) -> None:
    """Also behind right ones, and in lists and mappings inside of others."""
    document, wrong = filled(kind, "x"), []
    for *way, last in places(document):
        edited = copy.deepcopy(document)
        node: Any = edited
        for step in way:
            node = node[step]
        value, begin = node[last], time.process_time()
        key = ".".join(map(str, (*way, last)))
        if isinstance(value, list):
            node[last], at = [*value * 1500, *ENTRIES.values()], f"{key}.1500"
        elif value in ({"x": "x"}, {"x": {"x": "x"}}) and last != "details":  # which takes all
            node[last], at = value | ENTRIES, f"{key}.0"
        else:
            continue
        try:
            parse_document(kind, edited)
            wrong.append((key, "is accepted"))
        except ValueError as error:
            if not str(error).startswith(at) or time.process_time() - begin > 1:
                wrong.append((key, str(error), time.process_time() - begin))
    assert not wrong


@pytest.mark.run
@sampled(
    2,
    ("command", "key", "entry"),
    [
        (command, *spoiled)
        for command in ("report --mail", "history import")
        for spoiled in (("results", '{"a":1},'), ("versions", '"%d":[],'), ("results", "[],"))
    ],
)
def test_a_large_wrong_file_is_refused_in_10_s_and_1_gb(
    command: str, key: str, entry: str, tmp_path: Path
) -> None:
    entries = "".join(
        entry % n if "%" in entry else entry for n in range(15 * 2**20 // len(entry))
    )
    braces = "{}" if "%" in entry else "[]"
    text = json.dumps(CHECK | {key: "@"})
    file = tmp_path / "results.json"
    file.write_text(text.replace('"@"', braces[0] + entries.rstrip(",") + braces[1]))
    with (tmp_path / "err").open("w") as err:
        words = [sys.executable, "-m", "busbar", *command.split(), file]
        process = subprocess.Popen(
            words, stderr=err, env=os.environ | {"BUSBAR_HISTORY": str(tmp_path)}
        )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    said = (tmp_path / "err").read_text()
    assert process.returncode == 2, said
    assert said.count("\n") == 1, said
    assert str(file) in said, said
    assert f"{key}.0" in said or "has more than 4,000,000 values" in said
    assert used.ru_utime + used.ru_stime < 10
    assert used.ru_maxrss < 1e6  # KiB


@pytest.mark.parametrize(
    "row",
    [
        {"gb_per_s": 1e300},
        {"gb_per_s": 11.0, "limit": 10.0},
        {"gb_per_s": 4.0, "low": 5.0, "high": 9.0, "limit": 10.0},
        {"gb_per_s": -1.0},
        {"gb_per_s": 7.0},
        {"gb_per_s": 7.0, "low": 5.0, "high": 9.0, "bytes": 0},
        {"gb_per_s": 7.0, "low": 5.0, "high": 9.0, "bytes": -1},
        {"gb_per_s": 7.0, "low": 0.0, "high": 9.0},
        {"gb_per_s": 7.0, "low": 5.0, "high": 9.0, "typical": 70.0},
        {"gb_per_s": 7.0, "low": 5.0, "high": 9.0, "message": "4 of 9 GB/s"},
        {"metric": "correctness", "message": "9 bytes arrived wrong"},
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
    assert read_row.message.startswith("the file claims a pass")


@pytest.mark.parametrize(
    ("row", "more", "verdict"),
    [
        ({"verdict": "pass"}, {}, Verdict.PASS),
        ({"verdict": "pass"}, {"interrupted": "SIGTERM"}, Verdict.UNKNOWN),
        ({"verdict": "unjudged"}, {}, Verdict.UNJUDGED),
    ],
)
def test_a_file_that_claims_more_than_it_has(
    row: dict[str, Any], more: dict[str, Any], verdict: Verdict, tmp_path: Path
) -> None:
    file = tmp_path / "results.json"
    right = {"metric": "correctness", "message": ""} | row
    document = {"verdict": "pass", "interrupted": None, "causes": [], "notes": []} | more
    file.write_text(json.dumps(CHECK | document | {"results": [CHECK["results"][0] | right]}))
    assert read(file).verdict is verdict
