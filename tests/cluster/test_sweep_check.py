# SPDX-License-Identifier: MIT
"""The check ``sweep``: what it makes of the document of ``busbar sweep run``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from busbar.verdict import Verdict

pytestmark = pytest.mark.run
HEALTHY: dict[str, Any] = {
    "schema": "busbar-sweep-run/1",
    "verdict": "pass",
    "nodes": ["n1", "n2"],
    "median_gb_per_s": 1.5,
    "accused": [],
    "wrong_data": [],
    "unmeasured": [],
    "stopped": "",
}
SLOW = {"id": "n2", "kind": "node", "evidence": "slow", "nodes": ["n2"], "confirmed": True}


def verdicts(*lines: str) -> list[tuple[Verdict, str]]:
    """Return verdict and place of each result of a job that printed these lines."""
    from reframe_checks.sweep import results_of

    return [(row.verdict, row.where) for row in results_of("sweep", lines, ["busbar: why"])]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("pass", "n1,n2")]),
        ({"verdict": "unjudged"}, [("unjudged", "n1,n2")]),
        ({"verdict": "degraded", "accused": [SLOW]}, [("degraded", "n2")]),
        ({"verdict": "failed", "wrong_data": ["n1-n2"]}, [("failed", "")]),
        ({"verdict": "failed", "unmeasured": ["n2"]}, [("failed", "")]),
        ({"verdict": "unknown", "unmeasured": ["n2"], "stopped": "late"}, [("unknown", "")]),
        ({"verdict": "pass", "unmeasured": ["n2"]}, [("unknown", "")]),
        ({"verdict": "not run"}, [("not run", "n1,n2")]),
        ({"schema": "busbar-sweep/1"}, [("failed", "")]),
        ({"verdict": "fine"}, [("failed", "")]),
    ],
)
def test_each_verdict(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    text = json.dumps(HEALTHY | changes, indent=1)
    assert verdicts("a line before", *text.splitlines(), "a line after") == expected


@pytest.mark.parametrize("lines", [[], ["{"], ["{}"], ["[]"], [json.dumps(HEALTHY)[:-9]]])
def test_no_document_is_a_failure(lines: list[str]) -> None:
    assert verdicts(*lines) == [("failed", "")]
