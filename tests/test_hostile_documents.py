# SPDX-License-Identifier: MIT
"""A hostile value in every text of every document leaves no page, metric, line or table raw.

`tests/site/test_boundary.py` does the same with every text of a site.
"""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from busbar.check.snapshot import of_document
from busbar.cluster.nightly import night as nightly
from busbar.cluster.nightly.night import Night, NightlyDocument
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.document import parse_document
from busbar.engine.check_document import CheckDocument
from busbar.gate import output as gate_output
from busbar.gate.findings import GateDocument, reason_of
from busbar.history.importing import JsonLine
from busbar.history.store import FILE
from busbar.report.junit import junit, junit_of_night
from tests.results import complete
from tests.said import Command
from tests.test_html import Elements
from tests.test_terminal import hidden

HOSTILE = (
    "x'); DROP TABLE reading; --\"><script>alert(1)</script><img src=x onerror=a()>{{ 7 * 7 }}"
    '$(touch F)`touch F`\\\x1b[2J\u202e\x00\n# TYPE forged gauge\nforged{a="1"} 1\nverdict: pass'
    "\r\u2028verdict: pass\u2029\u0085\u2066]]><%= 7 %>"
)
LINES = {"# TYPE forged gauge", 'forged{a="1"} 1', "verdict: pass"}


def inert(text: str) -> None:
    """Nothing in printed text is obeyed, and no line is of the hostile value."""
    assert not hidden(text) - {"\t"}
    assert not LINES & set(text.splitlines())


def pages(directory: Path) -> None:
    for path in directory.glob("*.html"):
        text = path.read_text()
        found = Elements(text)
        assert not found.tags & {"iframe", "object", "embed", "base", "form", "img", "image"}
        assert found.scripts <= 1
        assert not [name for name, _ in found.attributes if name.startswith("on")]
        assert not hidden(text) - {"\t"}
    names = [path.name for path in directory.iterdir()]
    assert "index.html" in names
    assert all(name.replace(".html", "").replace("-", "").isalnum() for name in names)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "history"))
    monkeypatch.chdir(tmp_path)


def test_reports(tmp_path: Path, busbar: Command) -> None:
    document = complete(CheckDocument, HOSTILE)
    files = {"results.json": document | {"site": "h200x4"}, "hostile.json": document}
    for kind in (Analysis, SweepRun):
        files[f"{kind.__name__}.json"] = complete(kind, HOSTILE)
    for name, each in files.items():
        (tmp_path / name).write_text(json.dumps(each))
    said = busbar("report hostile.json --mail --output out --prometheus busbar.prom")
    assert said.status == 0, said.err
    inert(said.out + said.err)
    pages(tmp_path / "out")
    metrics = list(text_string_to_metric_families((tmp_path / "busbar.prom").read_text()))
    assert len(metrics) > 3
    assert all(each.name.startswith("busbar_") for each in metrics)
    for kind in (Analysis, SweepRun):
        said = busbar(f"report results.json --output {kind.__name__} --sweep {kind.__name__}.json")
        assert said.status == 0, said.err
        inert(said.out + said.err)
        pages(tmp_path / kind.__name__)
    assert not list(tmp_path.rglob("F"))


def test_nights_and_gates(tmp_path: Path) -> None:
    checked = parse_document(CheckDocument, complete(CheckDocument, HOSTILE))
    outcomes = of_document(checked).outcomes
    night = Night(tmp_path)
    state = parse_document(NightlyDocument, complete(NightlyDocument, HOSTILE))
    for text in (junit(HOSTILE, outcomes, [], HOSTILE), junit_of_night(night, state)):
        assert {each.tag for each in ET.fromstring(text).iter()} <= {  # noqa: S314 - our own
            *("testsuites", "testsuite", "testcase", "failure", "error", "skipped"),
            *("properties", "property", "system-out"),
        }
        assert not hidden(text) - {"\t"}
    inert("\n".join(nightly.summary(night, state)))
    gated = parse_document(GateDocument, complete(GateDocument, HOSTILE))
    assert all(
        each.name.startswith("busbar_gate_")
        for each in text_string_to_metric_families(gate_output.metrics(gated))
    )
    reason = reason_of(gated.checks)
    assert reason.isascii()
    assert reason.isprintable()
    assert not set("$`'\"\\|") & set(reason)


def test_histories(tmp_path: Path, busbar: Command) -> None:
    line: dict[str, Any] = dict.fromkeys(JsonLine.model_fields, HOSTILE)
    numbers = dict.fromkeys(("value", "low", "typical", "high", "limit"), 1.0)
    with (tmp_path / "in.jsonl").open("w") as file:
        for day in range(1, 13):
            more = {"time": f"2026-01-{day:02}", "provenance": {HOSTILE: f"{HOSTILE}{day // 7}"}}
            file.write(
                json.dumps(line | numbers | more | {"value": 9.0 if day < 7 else 1.0}) + "\n"
            )
    for command in ("import in.jsonl", "list", "show", "changes", "show --json", "changes --json"):
        said = busbar(f"history {command}")
        assert said.status in (0, 1), said.err
        inert(said.out + said.err)
    with closing(sqlite3.connect(tmp_path / "history" / FILE)) as db:
        assert db.execute("SELECT count(*), max(site) FROM reading, series").fetchone() == (
            12,
            HOSTILE,
        )
    document = complete(CheckDocument, HOSTILE) | {"time": "2026-01-13"}
    (tmp_path / "results.json").write_text(json.dumps(document))
    assert busbar("report results.json --output out").status == 0
    pages(tmp_path / "out")
