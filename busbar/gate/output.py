# SPDX-License-Identifier: MIT
"""The result of the gate as text and as metrics."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from pkgutil import get_data

from busbar.boundary import metric_label, refuse_foreign, replace_file
from busbar.gate.findings import GateDocument, gravest_first
from busbar.plain import Column, Part, Plain
from busbar.verdict import STYLES, Verdict

DRAIN = "drain: "
"""What the line with the reason begins with. The scripts for Slurm look for it."""
_RANKS = {"verdict": 0, "check": 0, "where": 1, "value": 2, "band": 3, "mode": 5, "note": 4}
_COLUMNS = tuple(Column(name, rank=rank) for name, rank in _RANKS.items())
_MOST_FAULTS = 3


def show(result: GateDocument, screen: Plain) -> None:
    """Print what is wrong, a line for each check that did not pass, and the reason of a drain."""
    verdict = (str(result.verdict), STYLES[result.verdict])
    screen.line(verdict, f": {result.node}: {_sentence(result)}")
    rows: list[list[Part]] = [
        [
            (str(row.verdict), STYLES[row.verdict]),
            *(row.check, row.where, row.value, row.band, row.mode, row.note),
        ]
        for row in gravest_first(result.checks)
        if row.verdict is not Verdict.PASS or row.gb_per_s is not None
    ]
    if rows:
        screen.fitted(_COLUMNS, rows)
    for problem in result.problems:
        screen.line(f"not complete: {problem}")
    if step := _next(result):
        screen.line(f"next: {step}")
    passed = sum(row.verdict is Verdict.PASS for row in result.checks)
    kind = "state only" if result.passive else "state and copies"
    site = f"site {result.site}" if result.site else "no site"
    screen.line(
        f"{passed} of {len(result.checks)} checks pass, {kind}, {site}, {result.seconds:.1f} s"
    )
    if result.reason:
        screen.line(f"{'' if result.drain else 'would '}{DRAIN}{result.reason}")


def _sentence(result: GateDocument) -> str:
    faults = [row for row in gravest_first(result.checks) if row.is_fault]
    if faults:
        parts = [
            f"{row.check} {row.where}".strip()
            + f" is {row.value}"
            + f", not {row.band}" * bool(row.band)
            for row in faults
        ]
        ending = "; the site only observes this: the node stays in service"
        if result.reason:
            ending = "" if result.drain else "; a dry run drains nothing"
        return "; ".join(parts[:_MOST_FAULTS]) + _more(parts) + ending
    doubtful = [row for row in result.checks if row.verdict is Verdict.UNKNOWN]
    open_ = [*result.problems, *(f"{row.check}: {row.note}" for row in doubtful)]
    if open_:
        return f"no certain fault was found; {open_[0]}" + _more(open_, 1)
    return "no fault was found, it is fit for jobs"


def _next(result: GateDocument) -> str:
    """Return what to do; empty if nothing is wrong."""
    called = f"busbar gate --site {result.site}" if result.site else "busbar gate"
    if sys.argv[0].endswith(".pyz"):
        called = f"python3 -I {shlex.quote(sys.argv[0])}"
    if result.problems:
        return f"{result.problems[0]}; then run {called} again"
    if not result.site:
        return "busbar site list, then busbar gate --site NAME, which checks more"
    if faults := [row for row in gravest_first(result.checks) if row.is_fault]:
        first = faults[0]
        return f"{f'{first.check} {first.where}'.strip()}: {first.remedy}; then run {called} again"
    open_ = [row.check for row in result.checks if row.verdict is Verdict.UNKNOWN]
    return f"nothing to repair; the line for {open_[0]} gives the reason" if open_ else ""


def _more(parts: Sequence[str], shown: int = _MOST_FAULTS) -> str:
    return f"; and {len(parts) - shown} more" if len(parts) > shown else ""


def write_metrics(result: GateDocument, path: Path) -> None:
    """Write the metrics for node_exporter's textfile collector; it never sees half a file."""
    refuse_foreign(path.parent, str(path))
    replace_file(path, metrics(result), public=True)


def metrics(result: GateDocument) -> str:
    """Return the metrics in the text format of Prometheus."""
    at = datetime.fromisoformat(result.time).timestamp()
    places = [(row, {"check": row.check, "where": row.where}) for row in result.checks]
    samples: dict[str, list[tuple[dict[str, str], float]]] = {
        "drain": [({}, result.drain)],
        "complete": [({}, not result.problems)],
        "duration_seconds": [({}, result.seconds)],
        "timestamp_seconds": [({}, at)],
        "verdict": [({"verdict": str(each)}, each is result.verdict) for each in Verdict],
        "fault": [(place | {"mode": row.mode}, row.is_fault) for row, place in places],
        "unknown": [(place, row.verdict is Verdict.UNKNOWN) for row, place in places],
        "copy_bytes_per_second": [
            (place, row.gb_per_s * 1e9) for row, place in places if row.gb_per_s is not None
        ],
    }
    lines = []
    texts = json.loads(get_data(__name__, "metrics.json") or "")
    for name, text in texts.items():
        full = f"busbar_gate_{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} gauge"]
        for labels, value in samples[name]:
            words = ",".join(f'{key}="{metric_label(label)}"' for key, label in labels.items())
            lines.append(f"{full}{f'{{{words}}}' if words else ''} {float(value)!r}")
    return "\n".join(lines) + "\n"
