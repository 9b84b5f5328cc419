# SPDX-License-Identifier: MIT
"""What a run tells while it runs: the jobs before the first of them, then each job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busbar.check.listing import Match
from busbar.check.names import short_name
from busbar.check.places import NodeSweep

_STEP = re.compile(
    r"\[\s*(?P<word>RUN|OK|FAIL|SKIP)\s*\]\s+(?:\(\s*\d+/\d+\)\s+)?"
    r"(?P<name>\S.*?)(?= [~/@]|$)(?P<fixture> ~)?"
)


@dataclass(frozen=True)
class Step:
    """A job that starts or ends."""

    check: str
    """Its name for people."""
    ended: bool = False
    counts: bool = True
    """Whether it is one of the jobs that the run has announced: a build or a repetition is not."""


Progress = Callable[[Step], None]


def step_of(line: str) -> Step | None:
    """Return the step that a line of ReFrame reports, if any."""
    step = _STEP.match(line)
    if not step:
        return None
    name = short_name(step["name"])
    return Step(name, ended=step["word"] != "RUN", counts=not step["fixture"])


def cases_of(report: Path) -> list[dict[str, Any]]:
    """Return the cases of ReFrame's report; none if it is missing or cut."""
    try:
        runs = json.loads(report.read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return list(runs[-1]["testcases"]) if runs else []


def job_count(matches: Sequence[Match], sweep: NodeSweep | None) -> int:
    """Return the number of jobs; each place of a sweep has one of each check."""
    pairs = [(match, place.partition("+")[0]) for match in matches for place in match.runs_in]
    if sweep is None:
        return len(pairs)
    return sum(len(sweep.places(partition, match.nodes)) for match, partition in pairs)
