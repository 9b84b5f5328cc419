# SPDX-License-Identifier: MIT
"""The JUnit file of a run counts what is wrong and what did not run, with partition and node."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from busbar.check.listing import Match
from busbar.engine.results import Outcome, Result
from busbar.report.junit import junit
from busbar.verdict import Verdict


def outcome(verdict: Verdict, where: str, message: str = "") -> Outcome:
    row = Result("net", verdict, where, metric="bandwidth", bytes=8, gb_per_s=1.5, message=message)
    return Outcome("net", "ucx-1.14", (row,), "lab", "wheels", nodes=where)


def test_the_counts_and_places() -> None:
    outcomes = [
        outcome(Verdict.PASS, "n1,n2"),
        outcome(Verdict.DEGRADED, "n3", "slow \x1b[2J & <bad>"),
        outcome(Verdict.NOT_RUN, "", "Slurm refused the job: Invalid account"),
    ]
    skipped = [Match("pt2pt", "", (), (), (), reason="lacks a GPU")]
    (suite,) = ET.fromstring(junit("x", outcomes, skipped, "2026-01-01T00:00:00+00:00"))  # noqa: S314
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}
    good, bad, not_run, left = suite
    assert (good.get("classname"), good.get("name")) == ("x.lab.wheels", "net n1,n2")
    assert good.findtext("system-out") == "n1,n2 bandwidth 8 bytes: 1.5 GB/s pass"
    failure = bad.find("failure")
    assert failure is not None
    assert "slow \\x1b[2J & <bad>" in failure.get("message", "")
    error = not_run.find("error")
    assert error is not None
    assert "Invalid account" in error.get("message", "")
    assert left.find("skipped") is not None
    values = {each.get("name"): each.get("value") for each in bad.iter("property")}
    assert values == {"partition": "lab", "nodes": "n3", "verdict": "degraded"}
