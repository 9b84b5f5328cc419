# SPDX-License-Identifier: MIT
"""The result of the gate as text, JSON, a verdict of NVIDIA Health Validation, or metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from busbar.documents import (
    AffectedComponent,
    GateDocument,
    GateRow,
    NodeVerdictDocument,
    NodeVerdictRow,
)
from busbar.gate.findings import CHECKS, Category, Ruled
from busbar.gate.run import Result
from busbar.redact import redact
from busbar.site.gate import GateAction
from busbar.terminal import Column, Part, Terminal
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
_SEVERITIES = ("PASS", "INFO", "WARNING", "UNKNOWN", "CRITICAL")
_STEPS: dict[GateAction, list[str]] = {
    "note": [],
    "drain": [],
    "reset_gpu": ["reset_gpu", "restart_os", "service_required"],
    "reboot": ["restart_os", "service_required"],
    "service": ["service_required"],
}
"""Their names of the actions; each step is for a fault that the one before did not repair."""


def show(result: Result, terminal: Terminal) -> None:
    """Print a line for each check that did not pass, how many did, and the reason of a drain."""
    rows: list[list[Part]] = []
    for check in result.checks:
        finding = check.finding
        if finding.verdict is Verdict.PASS and finding.gb_per_s is None:
            continue
        rows.append(
            [
                (str(finding.verdict), STYLES[finding.verdict]),
                *(finding.check, finding.where, finding.value, finding.band, check.mode),
                redact(finding.note),
            ]
        )
    if rows:
        terminal.fitted(_COLUMNS, rows)
    for problem in result.problems:
        terminal.line(f"not complete: {redact(problem)}")
    passed = sum(check.finding.verdict is Verdict.PASS for check in result.checks)
    kind = "state only" if result.passive else "state and copies"
    site = f"site {result.basis.site}" if result.basis.site else "no site"
    terminal.line(
        *(f"{result.node}: ", (str(result.verdict), STYLES[result.verdict])),
        f", {passed} of {len(result.checks)} checks pass, {kind}, {site}, {result.seconds:.1f} s",
    )
    if result.reason:
        terminal.line(f"{DRAIN}{result.reason}")


def document(result: Result) -> GateDocument:
    """Return the JSON document."""
    return {
        "schema": "busbar-gate/1",
        "node": result.node,
        "site": result.basis.site,
        "partition": result.basis.partition,
        "time": _time(result),
        "seconds": round(result.seconds, 3),
        "passive": result.passive,
        "verdict": result.verdict,
        "drain": bool(result.faults),
        "reason": result.reason,
        "problems": [redact(problem) for problem in result.problems],
        "checks": [_row(check) for check in result.checks],
    }


def _row(check: Ruled) -> GateRow:
    finding = check.finding
    assert check.mode != "skip"
    return {
        "check": finding.check,
        "where": finding.where,
        "verdict": finding.verdict,
        "value": finding.value,
        "band": finding.band,
        "gb_per_s": finding.gb_per_s,
        "note": redact(finding.note),
        "mode": check.mode,
        "severity": check.severity,
        "action": check.action,
        "remedy": check.remedy,
        "drains": check.drains,
    }


def node_verdict(result: Result) -> NodeVerdictDocument:
    """Return the verdict in the words of NVIDIA Health Validation.

    https://docs.nvidia.com/health-validation/reference/verdict-schema. A fault that the site only
    observes is at most a WARNING, as others act on CRITICAL.
    """
    rows = [_verdict_row(check) for check in result.checks]
    severities = [row["severity"] for row in rows] + ["UNKNOWN" for _ in result.problems]
    return {
        "schema": "busbar-nodeverdict/1",
        "node": result.node,
        "timestamp": _time(result),
        "overall_severity": _worst(severities) if severities else "UNKNOWN",
        "affected_components": _affected(result),
        "verdicts": rows,
    }


def _severity(check: Ruled) -> str:
    finding = check.finding
    if finding.is_fault:
        if check.severity == "critical":
            return "CRITICAL" if check.drains else "WARNING"
        return check.severity.upper()
    return {Verdict.PASS: "PASS", Verdict.UNJUDGED: "INFO"}.get(finding.verdict, "UNKNOWN")


def _verdict_row(check: Ruled) -> NodeVerdictRow:
    finding = check.finding
    what = f"{finding.value or 'not known'}, expected {finding.band}" if finding.band else ""
    return {
        "check_id": finding.check,
        "category": CHECKS[finding.check].category,
        "entity": finding.where or "node",
        "severity": _severity(check),
        "message": redact("; ".join(filter(None, (what or finding.value, finding.note)))),
        "operational_state": "drain" if check.drains else "",
        "recommended_actions": _STEPS[check.action] if finding.is_fault else [],
    }


def _affected(result: Result) -> list[AffectedComponent]:
    by_category: dict[Category, list[Ruled]] = {}
    for check in result.checks:
        if _severity(check) != "PASS":
            by_category.setdefault(CHECKS[check.finding.check].category, []).append(check)
    return [
        {
            "category": category,
            "check_ids": list(dict.fromkeys(check.finding.check for check in checks)),
            "entities": list(dict.fromkeys(check.finding.where or "node" for check in checks)),
            "max_severity": _worst([_severity(check) for check in checks]),
        }
        for category, checks in by_category.items()
    ]


def _worst(severities: list[str]) -> str:
    return max(severities, key=_SEVERITIES.index)


def write_metrics(result: Result, path: Path) -> None:
    """Write the metrics for node_exporter's textfile collector; it never sees half a file."""
    # It takes a while to load, and few runs need it.
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile  # noqa: PLC0415

    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"busbar_gate_{name}", text, labels, registry=registry)

    gauge("drain", "Whether the node must leave service").set(bool(result.faults))
    gauge("complete", "Whether all checks ran").set(not result.problems)
    gauge("duration_seconds", "How long the gate took").set(result.seconds)
    gauge("timestamp_seconds", "When the gate began").set(result.at)
    states = gauge("verdict", "1 for the verdict of the last run", ("verdict",))
    for verdict in Verdict:
        states.labels(str(verdict)).set(verdict is result.verdict)
    place = ("check", "where")
    fault = gauge("fault", "Whether a check found a fault", (*place, "mode"))
    unknown = gauge("unknown", "Whether the state of a check is unknown", place)
    copies = gauge("copy_bytes_per_second", "Rate of a copy", place)
    for check in result.checks:
        finding = check.finding
        labels = finding.check, finding.where
        fault.labels(*labels, check.mode).set(finding.is_fault)
        unknown.labels(*labels).set(finding.verdict is Verdict.UNKNOWN)
        if finding.gb_per_s is not None:
            copies.labels(*labels).set(finding.gb_per_s * 1e9)
    write_to_textfile(str(path), registry)


def _time(result: Result) -> str:
    return datetime.fromtimestamp(result.at, UTC).isoformat(timespec="seconds")
