# SPDX-License-Identifier: MIT
"""The result of the gate as text, JSON, a verdict of NVIDIA Health Validation, or metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from busbar.boundary import metric_label, refuse_foreign, replace_file
from busbar.gate.findings import GateDocument, GateRow
from busbar.gate.site import CHECKS, Category, GateAction
from busbar.plain import Column, Part, Plain
from busbar.verdict import STYLES, Verdict

DRAIN = "drain: "
"""What the line with the reason begins with. The scripts for Slurm look for it."""
_COLUMNS = (
    Column("verdict"),
    Column("check"),
    Column("where", rank=1),
    Column("value", rank=2),
    Column("band", rank=3),
    Column("mode", rank=5),
    Column("note", rank=4),
)
_MOST_FAULTS = 3
_SEVERITIES = ("PASS", "INFO", "WARNING", "UNKNOWN", "CRITICAL")
_STEPS: dict[GateAction, list[str]] = {
    "note": [],
    "drain": [],
    "reset_gpu": ["reset_gpu", "restart_os", "service_required"],
    "reboot": ["restart_os", "service_required"],
    "service": ["service_required"],
}
"""Their names of the actions; each step is for a fault that the one before did not repair."""


def show(result: GateDocument, screen: Plain) -> None:
    """Print what is wrong, a line for each check that did not pass, and the reason of a drain."""
    verdict = (str(result.verdict), STYLES[result.verdict])
    screen.line(verdict, f": {result.node}: {_sentence(result)}")
    rows: list[list[Part]] = [
        [
            (str(row.verdict), STYLES[row.verdict]),
            *(row.check, row.where, row.value, row.band, row.mode, row.note),
        ]
        for row in result.checks
        if row.verdict is not Verdict.PASS or row.gb_per_s is not None
    ]
    if rows:
        screen.fitted(_COLUMNS, rows)
    for problem in result.problems:
        screen.line(f"not complete: {problem}")
    if not result.site:
        screen.line("next: busbar site list, then busbar gate --site NAME: it judges more")
    passed = sum(row.verdict is Verdict.PASS for row in result.checks)
    kind = "state only" if result.passive else "state and copies"
    site = f"site {result.site}" if result.site else "no site"
    screen.line(
        f"{passed} of {len(result.checks)} checks pass, {kind}, {site}, {result.seconds:.1f} s"
    )
    if result.reason:
        screen.line(f"{DRAIN}{result.reason}")


def _sentence(result: GateDocument) -> str:
    faults = [row for row in result.checks if row.is_fault]
    if faults:
        parts = [
            f"{row.check} {row.where}".strip()
            + f" is {row.value}"
            + f", not {row.band}" * bool(row.band)
            for row in faults
        ]
        ending = "" if result.drain else "; the site only observes this: it may take jobs"
        return "; ".join(parts[:_MOST_FAULTS]) + _more(parts) + ending
    open_ = [f"{row.check}: {row.note}" for row in result.checks if row.verdict is Verdict.UNKNOWN]
    open_ += result.problems
    if open_:
        return f"nothing is certain against it; {open_[0]}" + _more(open_, 1)
    return "nothing speaks against it, it may take jobs"


def _more(parts: Sequence[str], shown: int = _MOST_FAULTS) -> str:
    return f"; and {len(parts) - shown} more" if len(parts) > shown else ""


@dataclass(frozen=True)
class AffectedComponent:
    """A category with checks that did not pass, in the words of NVIDIA Health Validation."""

    category: Category
    """Category of the checks."""
    check_ids: list[str]
    """The checks."""
    entities: list[str]
    """The places."""
    max_severity: str
    """The worst severity: INFO, WARNING, UNKNOWN or CRITICAL."""


@dataclass(frozen=True)
class NodeVerdictRow:
    """One check in one place, in the words of NVIDIA Health Validation."""

    check_id: str
    """Name of the check."""
    category: Category
    """Category of the check."""
    entity: str
    """The place; ``node`` for the whole node."""
    severity: str
    """PASS, INFO, WARNING, UNKNOWN or CRITICAL."""
    message: str
    """What was found and expected."""
    operational_state: str
    """``drain`` if the node must leave service; else empty."""
    recommended_actions: list[str]
    """``reset_gpu``, ``restart_os``, ``service_required``, in this order."""


@dataclass(frozen=True)
class NodeVerdictDocument:
    """The result of ``busbar gate`` in the words of NVIDIA Health Validation."""

    schema: Literal["busbar-nodeverdict/1"]
    """The schema of this document."""
    node: str
    """The node."""
    timestamp: str
    """ISO 8601, UTC."""
    overall_severity: str
    """PASS, INFO, WARNING, UNKNOWN or CRITICAL."""
    affected_components: list[AffectedComponent]
    """What did not pass, by category."""
    verdicts: list[NodeVerdictRow]
    """Every check in every place."""


def node_verdict(result: GateDocument) -> NodeVerdictDocument:
    """Return the verdict in the words of NVIDIA Health Validation.

    https://docs.nvidia.com/health-validation/reference/verdict-schema. A fault that the site only
    observes is at most a WARNING, as others act on CRITICAL.
    """
    rows = [_verdict_row(row) for row in result.checks]
    severities = [row.severity for row in rows] + ["UNKNOWN" for _ in result.problems]
    return NodeVerdictDocument(
        schema="busbar-nodeverdict/1",
        node=result.node,
        timestamp=result.time,
        overall_severity=_worst(severities) if severities else "UNKNOWN",
        affected_components=list(_affected(rows)),
        verdicts=rows,
    )


def _severity(row: GateRow) -> str:
    if row.is_fault:
        if row.severity == "critical":
            return "CRITICAL" if row.drains else "WARNING"
        return row.severity.upper()
    return {Verdict.PASS: "PASS", Verdict.UNJUDGED: "INFO"}.get(row.verdict, "UNKNOWN")


def _verdict_row(row: GateRow) -> NodeVerdictRow:
    what = f"{row.value or 'not known'}, expected {row.band}" if row.band else row.value
    return NodeVerdictRow(
        check_id=row.check,
        category=CHECKS[row.check].category,
        entity=row.where or "node",
        severity=_severity(row),
        message="; ".join(filter(None, (what, row.note))),
        operational_state="drain" if row.drains else "",
        recommended_actions=_STEPS[row.action] if row.is_fault else [],
    )


def _affected(rows: list[NodeVerdictRow]) -> Iterator[AffectedComponent]:
    bad = [row for row in rows if row.severity != "PASS"]
    for category in dict.fromkeys(row.category for row in bad):
        mine = [row for row in bad if row.category == category]
        yield AffectedComponent(
            category=category,
            check_ids=list(dict.fromkeys(row.check_id for row in mine)),
            entities=list(dict.fromkeys(row.entity for row in mine)),
            max_severity=_worst([row.severity for row in mine]),
        )


def _worst(severities: list[str]) -> str:
    return max(severities, key=_SEVERITIES.index)


def write_metrics(result: GateDocument, path: Path) -> None:
    """Write the metrics for node_exporter's textfile collector; it never sees half a file."""
    refuse_foreign(path.parent, str(path))
    replace_file(path, metrics(result), public=True)


def metrics(result: GateDocument) -> str:
    """Return the metrics in the text format of Prometheus."""
    at = datetime.fromisoformat(result.time).timestamp()
    places = [(row, {"check": row.check, "where": row.where}) for row in result.checks]
    gauges: tuple[tuple[str, str, list[tuple[dict[str, str], float]]], ...] = (
        ("drain", "Whether the node must leave service", [({}, result.drain)]),
        ("complete", "Whether all checks ran", [({}, not result.problems)]),
        ("duration_seconds", "How long the gate took", [({}, result.seconds)]),
        ("timestamp_seconds", "When the gate began", [({}, at)]),
        (
            *("verdict", "1 for the verdict of the last run"),
            [({"verdict": str(each)}, each is result.verdict) for each in Verdict],
        ),
        (
            *("fault", "Whether a check found a fault"),
            [(place | {"mode": row.mode}, row.is_fault) for row, place in places],
        ),
        (
            *("unknown", "Whether the state of a check is unknown"),
            [(place, row.verdict is Verdict.UNKNOWN) for row, place in places],
        ),
        (
            *("copy_bytes_per_second", "Rate of a copy"),
            [(place, row.gb_per_s * 1e9) for row, place in places if row.gb_per_s is not None],
        ),
    )
    lines = []
    for name, text, samples in gauges:
        full = f"busbar_gate_{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} gauge"]
        for labels, value in samples:
            words = ",".join(f'{key}="{metric_label(label)}"' for key, label in labels.items())
            lines.append(f"{full}{f'{{{words}}}' if words else ''} {float(value)!r}")
    return "\n".join(lines) + "\n"
