# SPDX-License-Identifier: MIT
"""What the gate found: one finding for each check and place, and what the site does about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from busbar.boundary import is_node, slurm_reason
from busbar.gate.site import CHECKS, GateAction, GateMode, GateSeverity, Rules
from busbar.redact import redact
from busbar.seal import Sealed
from busbar.units import outside, past
from busbar.verdict import Verdict, combined
from busbar.words import repeated


@dataclass(frozen=True)
class GateFinding:
    """The verdict of one check on one GPU, link, port or file system."""

    check: str
    verdict: Verdict
    where: str = ""
    """``gpu3``, ``gpu0->gpu1``, ``mlx5_0``, ``/scratch``; empty for the node."""
    value: str = ""
    """What was found, with its unit."""
    band: str = ""
    """What was expected, with its unit."""
    note: str = ""
    """Why the verdict is unknown, or evidence: one sentence."""
    gb_per_s: float | None = None
    """The reading of a copy."""
    remedy: str = ""
    """If it differs from the usual one of the check."""
    action: GateAction | None = None
    severity: GateSeverity | None = None
    mode: GateMode | None = None
    """The part's own action, if the site defines one."""
    silent: bool = False
    """Whether a driver or file system gave no answer; it has failed if that goes on."""


def compared(check: str, good: bool, where: str, value: str, band: str) -> GateFinding:
    """Return the finding of a check that passes or fails."""
    return GateFinding(check, Verdict.PASS if good else Verdict.FAILED, where, value, band)


def unknown(check: str, why: str, where: str = "", *, silent: bool = False) -> GateFinding:
    """Return the finding of a check that could not run."""
    return GateFinding(check, Verdict.UNKNOWN, where, note=why, silent=silent)


@dataclass(frozen=True)
class GateRow:
    """One check of ``busbar gate`` in one place."""

    check: str
    """Name of the check."""
    where: str
    """``gpu3``, ``gpu0->gpu1``, ``mlx5_0``, ``/scratch``; empty for the node."""
    verdict: Verdict
    """Verdict on this place."""
    value: str
    """What was found."""
    band: str
    """What was expected."""
    gb_per_s: float | None
    """The reading of a copy."""
    note: str
    """Evidence, or why the verdict is unknown."""
    mode: Literal["observe", "enforce"]
    """Whether the site acts on a fault."""
    severity: GateSeverity
    """Only critical faults drain."""
    action: GateAction
    """What repairs a fault."""
    remedy: str
    """The same in words."""
    drains: bool
    """Whether it takes the node out of service."""

    @property
    def is_fault(self) -> bool:
        """Whether it certainly speaks against the node."""
        return self.verdict in (Verdict.DEGRADED, Verdict.FAILED)


def ruled(finding: GateFinding, rules: Rules) -> GateRow | None:
    """Apply the rule of the site; None if the site skips the check."""
    rule, facts = rules.of(finding.check), CHECKS[finding.check]
    mode = finding.mode or rule.mode
    if mode == "skip" or rule.mode == "skip":
        return None
    severity = rule.severity or finding.severity or facts.severity
    action = rule.action or finding.action or facts.action
    return GateRow(
        check=finding.check,
        where=finding.where,
        verdict=finding.verdict,
        value=finding.value,
        band=finding.band,
        gb_per_s=finding.gb_per_s,
        note=redact(finding.note),
        mode=mode,
        severity=severity,
        action=action,
        remedy=finding.remedy or facts.remedy,
        drains=_drains(mode, severity, action)
        and finding.verdict in (Verdict.DEGRADED, Verdict.FAILED),
    )


@dataclass(frozen=True, kw_only=True)
class GateDocument(Sealed):
    """The result of ``busbar gate`` on one node."""

    schema: Literal["busbar-gate/1"] = "busbar-gate/1"
    """The schema of this document."""
    node: str
    """The node, by Slurm's name if it is known."""
    site: str
    """Name of the site; empty without one."""
    partition: str
    """Partition of the site; empty if all are alike."""
    time: str
    """When it began: ISO 8601, UTC."""
    seconds: float
    """How long it took."""
    passive: bool
    """Whether only the state was read."""
    verdict: Verdict
    """The worst verdict."""
    drain: bool
    """Whether the node must leave service; the exit status is then 1."""
    reason: str
    """The reason for Slurm, also in a dry run; empty if the node may stay."""
    problems: tuple[str, ...]
    """Why checks are missing; empty if all ran."""
    checks: tuple[GateRow, ...]
    """Every check in every place."""
    misconfigured: bool = False
    """Whether the site or the type of the node is unknown; the exit status is then 2."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield each key that does not follow from the others, or has an impossible value."""
        past(self.time)
        yield from outside(self, {"seconds": 86400})
        if not is_node(self.node):
            yield "node", f"{self.node[:40]!a} is not the name of one node"
        for at in repeated(self.checks):
            yield f"checks.{at}", "is the same as an earlier one"
        for at, row in enumerate(self.checks):
            key = f"checks.{at}"
            if row.check not in CHECKS:
                yield f"{key}.check", f"{row.check[:40]!a} is unknown"
            if row.drains != (row.is_fault and _drains(row.mode, row.severity, row.action)):
                yield f"{key}.drains", "does not follow from verdict, mode, severity and action"
            yield from ((f"{key}.{name}", what) for name, what in outside(row, {"gb_per_s": 1e6}))
        for name, own in _conclusion(self.checks, self.problems).items():
            if getattr(self, name) != own:
                yield name, f"is {str(getattr(self, name))!a}, but the checks say {str(own)!a}"


def _drains(mode: GateMode, severity: GateSeverity, action: GateAction) -> bool:
    """Return whether a fault takes the node out of service."""
    return mode == "enforce" and severity == "critical" and action != "note"


def _conclusion(checks: Sequence[GateRow], problems: Sequence[str]) -> dict[str, Any]:
    """Return what follows from the checks, and from those that are missing."""
    faults = [row for row in checks if row.drains]
    verdicts = [*(row.verdict for row in checks), *(Verdict.UNKNOWN for _ in problems)]
    reason = reason_of(faults) if faults else ""
    return {"verdict": combined(verdicts), "drain": bool(faults), "reason": reason}


@dataclass(frozen=True)
class Basis:
    """What the findings are judged by."""

    site: str = ""
    partition: str = ""
    rules: Rules = field(default_factory=Rules)
    problem: str = ""
    """Why the site is not known; empty if it is."""


def concluded(
    node: str,
    basis: Basis,
    findings: Sequence[GateFinding],
    *,
    at: float,
    seconds: float,
    passive: bool = False,
    problems: Sequence[str] = (),
) -> GateDocument:
    """Return the document: the verdict is the worst, ``unknown`` if the gate is not complete."""
    checks = tuple(row for each in findings if (row := ruled(each, basis.rules)))
    problems = tuple(redact(text) for text in (basis.problem, *problems) if text)
    return GateDocument(
        node=node,
        site=basis.site,
        partition=basis.partition,
        time=datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        passive=passive,
        **_conclusion(checks, problems),
        problems=problems,
        misconfigured=bool(basis.problem),
        checks=checks,
    )


MOST_BYTES = 255
"""Maximum bytes of a reason in Slurm's database (slurmdbd, event table: tinytext)."""
_MOST_VALUE, _MOST_BAND = 110, 50
_PREFIX = "[node_problem] "
_MARK = " (busbar)"
_OWN = re.compile(
    rf"\[node_problem\] (?P<check>{'|'.join(CHECKS)})(?: (?P<where>\S+))? .* vs .*: .*\(busbar\)"
)
_GRAVITY: tuple[GateAction, ...] = get_args(GateAction)


def gravest_first(rows: Iterable[GateRow]) -> list[GateRow]:
    """Return the faults that drain, then the other faults, each by its repair; then the rest."""

    def gravity(row: GateRow) -> tuple[bool, int]:
        return row.drains, _GRAVITY.index(row.action) if row.is_fault else -1

    return sorted(rows, key=gravity, reverse=True)


def reason_of(faults: Sequence[GateRow]) -> str:
    """Return the reason of a drain: the gravest fault, and how many others there are.

    Plain ASCII in one line. If it is too long, the remedy is cut.
    """
    first = gravest_first(faults)[0]
    what = " ".join(filter(None, (first.check, first.where, first.value or "failed")))
    more = f" (+{len(faults) - 1} more)" if len(faults) > 1 else ""
    band = (first.band or "healthy")[:_MOST_BAND]
    text = slurm_reason(f"{_PREFIX}{what[:_MOST_VALUE]} vs {band}: {first.remedy}")
    return text[: MOST_BYTES - len(more) - len(_MARK)].rstrip() + more + _MARK


def own_check(reason: str) -> str | None:
    """Return the check that a reason names if the gate wrote it; None for all other reasons."""
    match = _OWN.fullmatch(reason.strip())
    return next((name for name in CHECKS if match and name == match["check"]), None)
