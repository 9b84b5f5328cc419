# SPDX-License-Identifier: MIT
"""Documents of others: each wrong value is one error that names file and key, in bounded time."""

from __future__ import annotations

import copy
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.document import parse_document, read_document
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.gate.findings import GateDocument
from tests.cases import sampled, some
from tests.every_field import edits, places
from tests.results import complete
from tests.said import Command

EDITED = (CheckDocument, Analysis, SweepRun, NightlyDocument)
ENTRIES = {str(n): {"a": 1} for n in range(200_000)}
CHECK = complete(CheckDocument, "x") | {"site": "h200x4"}


def wrong_key(edit: str) -> str:
    """The key of an edit without the places in lists."""
    return next(
        word for word in reversed(edit.partition(" = ")[0].split(".")) if not word.isdigit()
    )


def names_key(edit: str, text: str) -> bool:
    """Whether an error names the edited key, or one that it contradicts."""
    other = re.search(r"\b(?:(?:results|skipped|stages)\.0\.\w+|nodes): ", text)
    return wrong_key(edit) in text or other is not None


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
            complete(kind, "x"),
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
        key = names_key(what, said.err)
        one = said.err.count("\n") == 1 and f"{file}: " in said.err and key
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
    file, document = tmp_path / "edited.json", complete(kind, "x")
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
    assert not [what for what, error in refused.items() if not names_key(what, error.what)]


@pytest.mark.parametrize("kind", [*EDITED, GateDocument])
def test_many_wrong_entries_are_one_error_soon(kind: Any) -> None:
    """Also behind right ones, and in lists and mappings inside of others."""
    document, wrong = complete(kind, "x"), []
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
