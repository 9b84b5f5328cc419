# SPDX-License-Identifier: MIT
"""Documents for tests that write them by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from busbar.cluster.nightly.night import NightlyDocument
from busbar.cluster.sweep.document import SweepRun
from busbar.engine.check_document import CheckDocument, ResultRow, verdict_of_run
from busbar.gate.findings import GateDocument
from busbar.verdict import Verdict
from tests.every_field import filled


def verdict_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """The verdict that the rows of a document have together."""
    names = ResultRow.__dataclass_fields__.keys()
    known = [row for row in rows if row.get("verdict") in set(Verdict)]
    results = [{name: row[name] for name in names & row.keys()} for row in known]
    return str(
        verdict_of_run(ResultRow(**row | {"verdict": Verdict(row["verdict"])}) for row in results)
    )


TIME = "2026-11-22T03:12:00+00:00"


def complete(kind: Any, text: str) -> dict[str, Any]:
    """A document with every key, in which every text is ``text`` but where it would contradict."""
    document: dict[str, Any] = filled(kind, text)
    if kind is CheckDocument:
        (row,) = document["results"]
        row |= {"verdict": "degraded", "metric": "bandwidth", "gb_per_s": 0.5, "us": None}
        row["series"] |= {"check": text.partition(" ")[0], "kind": "bw"}
        document |= {"time": TIME, "interrupted": "SIGTERM", "verdict": "degraded"}
    elif kind is SweepRun:
        document["verdict"] = "failed"
    elif kind is NightlyDocument:
        document["begun"] = document["stages"][0]["begun"] = TIME
    elif kind is GateDocument:
        document["checks"][0]["check"] = "gpu_count"
        document |= {"node": "n1", "time": TIME, "verdict": "unknown", "reason": ""}
    return document
