# SPDX-License-Identifier: MIT
"""Documents whose values contradict each other: one error that names the key, for each store."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busbar.check.document import document_of
from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.nodes.record import NodesDocument
from busbar.cluster.sweep.document import SweepRun
from busbar.cluster.sweep.rows import MeasuredPair, PlannedPair
from busbar.commands.gate import compile_site
from busbar.document import parse_document, to_json
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.gate import site as gate_site
from busbar.gate.findings import Basis, GateDocument, GateFinding, concluded
from busbar.gate.site import Rule, Rules
from busbar.seal import sealed
from busbar.site.load import load
from busbar.verdict import Verdict
from tests.cases import cases, some
from tests.reframe.altered import HEALTHY
from tests.reframe.faults import kept
from tests.reframe.kinds import KINDS
from tests.results import TIME

LATE = "2090-01-01T00:00:00+00:00"
RECORDED = {**KINDS, **HEALTHY}


def checked(name: str, text: str) -> dict[str, Any]:
    """results.json of a run whose check printed this."""
    outcome = kept(RECORDED[name], text)
    series = {"check": name, "partition": "gpu"}
    rows = tuple(
        replace(row, check=name, series=row.series and replace(row.series, **series))
        for row in outcome.results
    )
    outcome = replace(outcome, check=name, partition="gpu", environment="e", results=rows)
    document: dict[str, Any] = to_json(document_of("h200x4", "ucx-1.14", [outcome]))
    return document


def test_what_a_check_writes_is_believed() -> None:
    every = [(name, change) for name, kind in RECORDED.items() for change in kind.breaks.values()]
    for name, change in [*((name, str) for name in KINDS), *some(every, 8)]:
        document = checked(name, change(RECORDED[name].text))
        parse_document(CheckDocument, json.loads(json.dumps(document)), finite=True)


GATED = to_json(
    concluded(
        "n1",
        Basis(rules=Rules(checks={"gpu_count": Rule("enforce")})),
        [GateFinding("gpu_count", Verdict.FAILED, value="3", band="4")],
        at=1.79e9,
        seconds=1,
    )
)
ACCUSED = {"id": "n2", "kind": "node", "evidence": "12 of 24 GB/s", "nodes": ["n2"]}
SWEPT = {"schema": "busbar-sweep-run/1", "verdict": "degraded", "nodes": ["n1", "n2"]}
SWEPT |= {"median_gb_per_s": 24.0, "accused": [ACCUSED], "suspects": [], "unmeasured": []}
STAGE = {"name": "gate", "verdict": "failed", "message": "", "finished": True, "begun": TIME}
STAGE |= {"findings": [{"where": "n1", "verdict": "failed", "message": "x"}], "nodes": ["n1"]}
NIGHT = {"site": "a", "partition": "b", "begun": TIME, "names": ["gate"], "stages": [STAGE]}
NIGHT |= {"output": "x"}
PROOF = {"source": "gate", "time": TIME, "text": "x", "certain": True, "action": "drain"}
NODE = {"node": "n1", "state": "faulty", "since": TIME, "evidence": [PROOF], "looks": {}}
NODE |= {"looks": {"gate": TIME}, "next": "drain"}
BASES: dict[Any, dict[str, Any]] = {
    CheckDocument: checked("osu_bw", RECORDED["osu_bw"].text),
    GateDocument: GATED,
    SweepRun: SWEPT,
    NightlyDocument: NIGHT,
    NodesDocument: {"nodes": [NODE]},
}
R = next(n for n, row in enumerate(BASES[CheckDocument]["results"]) if row["low"])
ROW = f"results.{R}"
TWICE = object()
FORGED: dict[Any, list[tuple[str, Any, str]]] = {
    CheckDocument: [
        (f"{ROW}.metric", "temperature", f"{ROW}.metric"),
        (f"{ROW}.metric", "latency", f"{ROW}.gb_per_s"),
        (f"{ROW}.us", 3.0, f"{ROW}.us"),
        (f"{ROW}.gb_per_s", 1.0, f"{ROW}.verdict"),
        (f"{ROW}.gb_per_s", None, f"{ROW}.gb_per_s"),
        (f"{ROW}.gb_per_s", -1.0, f"{ROW}.verdict"),
        (f"{ROW}.gb_per_s", 1e300, f"{ROW}.verdict"),
        (f"{ROW}.verdict", "degraded", f"{ROW}.verdict"),
        (f"{ROW}.verdict", "impossible", f"{ROW}.verdict"),
        (f"{ROW}.verdict", "not run", f"{ROW}.verdict"),
        (f"{ROW}.low", None, f"{ROW}.verdict"),
        (f"{ROW}.high", 1.0, f"{ROW}.high"),
        (f"{ROW}.typical", 1e8, f"{ROW}.high"),
        (f"{ROW}.limit", 1.0, f"{ROW}.limit"),
        (f"{ROW}.bytes", 0, f"{ROW}.verdict"),
        (f"{ROW}.bytes", 1 << 60, f"{ROW}.bytes"),
        (f"{ROW}.series.bytes", 8, f"{ROW}.series"),
        (f"{ROW}.series.check", "memory", f"{ROW}.series"),
        (f"{ROW}.cpu_wait_share", 1.5, f"{ROW}.cpu_wait_share"),
        (f"{ROW}.cause", "rank-died", f"{ROW}.cause"),
        (f"{ROW}.message", "4 of 9 wrong", f"{ROW}.message"),
        (ROW, TWICE, "results."),
        ("verdict", "degraded", "verdict"),
        ("interrupted", "SIGTERM", "verdict"),
        ("results", [], ""),
        ("time", LATE, "time"),
        ("provenance", {"nothing": {}}, "provenance.nothing"),
        ("skipped", [{"check": "osu_bw", "reason": "x"}], "skipped.0.check"),
    ],
    GateDocument: [
        ("verdict", "pass", "verdict"),
        ("drain", False, "drain"),
        ("reason", "bad fan", "reason"),
        ("checks.0.verdict", "pass", "checks.0.drains"),
        ("checks.0.drains", False, "checks.0.drains"),
        ("checks.0.mode", "observe", "checks.0.drains"),
        ("checks.0.check", "gpu_countt", "checks.0.check"),
        ("checks.0.gb_per_s", -1.0, "checks.0.gb_per_s"),
        ("checks.0", TWICE, "checks.1"),
        ("checks", [], ""),
        ("checks.0.where", "gpu0", "reason"),
        ("seconds", -1.0, "seconds"),
        ("time", LATE, "time"),
        *((("node", name, "node")) for name in ("", "n[1-9]", "all", "n1,n2", "a b")),
    ],
    SweepRun: [
        ("verdict", "pass", "verdict"),
        ("accused", [], "verdict"),
        ("accused.0", TWICE, "accused.1"),
        ("accused.0.nodes", ["n9"], "nodes"),
        ("gone", [{"node": "n1", "reason": "x"}], "verdict"),
        ("wrong_data", ["n1-n2"], "verdict"),
        ("unsteady", ["n9"], "nodes"),
        ("suspects", [{"a": "n1", "b": "n9"}], "nodes"),
        ("nodes", ["n1", "n2", "n2"], "nodes"),
        ("rounds", -1, "rounds"),
        ("median_gb_per_s", 1e300, "median_gb_per_s"),
        ("launch_s", -1.0, "launch_s"),
    ],
    NightlyDocument: [
        ("stages.0.verdict", "pass", "stages.0.verdict"),
        ("stages.0", TWICE, "stages.1.name"),
        ("stages.0.begun", "2020-01-01", "stages.0.begun"),
        ("stages.0.begun", "soon", "stages.0.begun"),
        ("stages.0.seconds", -1.0, "stages.0.seconds"),
        ("stages.0.left_out", ["n9"], "stages.0.left_out"),
        ("begun", LATE, "begun"),
        *(("names", names, "names") for names in ([], ["sweep"], ["gate", "gate"])),
        *(("stages.0.nodes", nodes, "stages.0.nodes") for nodes in (["n1", "n1"], [""])),
    ],
    NodesDocument: [
        *(("nodes.0.node", name, "nodes.0.node") for name in ("n[1-9]", "ALL", "$(x)")),
        ("nodes.0.next", "", "nodes.0.next"),
        ("nodes.0.state", "healthy", "nodes.0.state"),
        ("nodes.0.evidence", [], "nodes.0.state"),
        ("nodes.0.evidence.0.certain", False, "nodes.0.state"),
        ("nodes.0.evidence.0.time", LATE, "nodes.0"),
        ("nodes.0.looks", {}, "nodes.0.looks"),
        ("nodes.0.since", "soon", "nodes.0"),
        ("nodes.0", TWICE, "nodes.1.node"),
    ],
}


def forged(document: dict[str, Any], way: str, value: Any) -> Any:
    """A copy of a document with one value changed, or one row listed twice."""
    found = copy.deepcopy(document)
    node: Any = found
    *steps, last = (int(step) if step.isdigit() else step for step in way.split("."))
    for step in steps:
        node = node[step]
    if value is TWICE:
        node.append(copy.deepcopy(node[last]))
    else:
        node[last] = value
    return found


@pytest.mark.parametrize("kind", FORGED)
def test_a_contradiction_is_named_by_its_key(kind: Callable[..., Any]) -> None:
    parse_document(kind, BASES[kind], finite=True)
    wrong = []
    for way, value, key in FORGED[kind]:
        try:
            parse_document(kind, forged(BASES[kind], way, value), finite=True)
            wrong.append((way, value, "is believed"))
        except ValueError as error:
            if not str(error).startswith(key):
                wrong.append((way, value, str(error)))
    assert not wrong


PAIR = {"round": 1, "a": "n1", "b": "n2", "nic": None, "gb_per_s": 24.0, "state": "ok"}
CONSISTENT: dict[Any, list[tuple[str, Any]]] = {
    CheckDocument: [
        *(("site", "p5"), ("time", TIME), ("versions.mpi", "Open MPI 9"), ("sessions", ["x"])),
        *((f"{ROW}.where", "n9"), (f"{ROW}.pair", "1->0"), (f"{ROW}.cpu_wait_share", 0.0)),
    ],
    GateDocument: [("node", "n9"), ("site", "p5"), ("passive", True), ("seconds", 2.0)],
    SweepRun: [("accused.0.evidence", "1 of 2"), ("median_gb_per_s", 25.0), ("rounds", 7)],
    NightlyDocument: [("site", "b"), ("stages.0.message", "y"), ("unusable", ["n2 down"])],
    NodesDocument: [("nodes.0.node", "n9"), ("nodes.0.evidence.0.text", "y"), ("nodes", [])],
    PlannedPair: [("round", 2), ("b", "n9")],
    MeasuredPair: [("gb_per_s", 23.0), ("b", "n9"), ("nic", "ib0"), ("resent", [0.0, 0.5])],
}


@pytest.mark.parametrize("kind", CONSISTENT)
def test_an_edit_of_a_sealed_document_is_found(kind: Callable[..., Any]) -> None:
    """But not its format, and a document without the seal is judged by what it says."""
    document = sealed(BASES.get(kind, PAIR))
    for way, value in CONSISTENT[kind]:
        edited = forged(document, way, value)
        assert edited != document, way
        with pytest.raises(ValueError, match="was changed after it was written: its sha256"):
            parse_document(kind, edited)
        del edited["sha256"]
        assert parse_document(kind, edited)
    text = json.dumps(document, indent=1)
    jq = json.dumps(document, sort_keys=True, ensure_ascii=False).replace(".0,", ",")
    for form in (text, text.replace("24.0", "24"), jq):
        assert parse_document(kind, json.loads(form)) == parse_document(kind, document)
    changed = text.replace(document["sha256"], "0" * 64)
    with pytest.raises(ValueError, match="was changed"):
        parse_document(kind, json.loads(changed))


@cases(
    ("way", "value"),
    [
        ("name", "other"),
        ("rules.checks", {"gpu_xid": {"mode": "ENFORCE"}}),
        ("rules.checks", {"gpu_xidd": {"mode": "enforce"}}),
        ("rules.xid_hours", -1),
        ("rules.xid_hours", "24"),
        ("rules.mounts", [{"path": "tmp"}]),
        ("rules.mounts", [{"path": "/tmp", "free_percent": 500}]),
        ("partitions.gpu", "nothing"),
        ("partitions", {}),
        ("hosts", {"n1": "nothing"}),
        ("nodes.gpu.cores", True),
        ("nodes.gpu.gpus.count", "4"),
        ("nodes.gpu.copies", {"D D 0 1": {"low": float("nan")}}),
        ("nodes.gpu.copies", {"D D 0 1": {"low": 9.0, "high": 8.0}}),
        ("nodes.gpu.copies", {"D D 0 1": {"low": 7.0, "high": 8.0, "limit": 7.5}}),
    ],
)
def test_a_forged_compiled_site_is_refused(way: str, value: Any, tmp_path: Path) -> None:
    document = json.loads(json.dumps(compile_site(load("h200x4")).document))
    (node,) = document["nodes"]
    (partition,) = document["partitions"]
    way = way.replace("nodes.gpu", f"nodes.{node}")
    way = way.replace("partitions.gpu", f"partitions.{partition}")
    file = tmp_path / "site.json"
    file.write_text(json.dumps(document))
    assert json.dumps(gate_site.read(file).document) == json.dumps(document)
    file.write_text(json.dumps(forged(document, way, value)))
    with pytest.raises(BusbarError) as error:
        gate_site.read(file)
    assert error.value.where == str(file)
    assert way.rpartition(".")[0] in error.value.what
