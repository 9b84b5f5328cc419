# SPDX-License-Identifier: MIT
"""Select the findings that explain the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Cause
from busbar.engine.verdicts import Judged
from busbar.explain.catalog import CAUSES, declare, hidden_by
from busbar.explain.rules import Explains, Finding, finding
from busbar.units import format_bytes
from busbar.verdict import Verdict

declare("above-limit", "invalid-reading", "below-band-unexplained")


def select(
    findings: Sequence[Finding], outcome: Verdict, judged: Sequence[Judged], facts: JobOutput
) -> list[Cause]:
    """Return the causes that explain ``outcome``, certain ones first; none for a pass.

    ``facts`` are those of the run: some remedies depend on its versions.
    """
    if not outcome.is_problem:
        return []
    # A run that was slow until its time limit ended it is explained by what made it slow.
    slow = any(f.id == "timeout" for f in findings) and (
        any(j.is_slow for j in judged) or any(f.id == "host-staging" for f in findings)
    )
    relevant = [
        f for f in findings if _accounts_for(f, outcome) or (slow and f.explains is Explains.SLOW)
    ]
    hidden = {
        consequence
        for finding in relevant
        for consequence in hidden_by(finding.id)
        if not (
            finding.confidence == "likely"
            and consequence == "rank-died"
            and finding.effect is Verdict.PASS
        )
    }
    explicit = [f for f in relevant if f.id not in hidden and f.id != "below-band-unexplained"]
    if not explicit:
        explicit = [f for f in relevant if f.id not in hidden] or _unexplained(outcome, judged)
    causes: dict[str, Cause] = {}
    for f in explicit:
        if f.id not in causes:
            remedy = CAUSES[f.id].remedy_for(facts)
            causes[f.id] = Cause(f.id, f.confidence, f.summary, f.evidence, remedy, f.details)
    return sorted(causes.values(), key=lambda c: c.confidence != "certain")


def _accounts_for(finding: Finding, outcome: Verdict) -> bool:
    if finding.effect is not Verdict.PASS:
        return True
    if outcome is Verdict.UNKNOWN:
        return finding.explains in (Explains.SLOW, Explains.LOAD)
    if outcome is Verdict.DEGRADED:
        return finding.explains is Explains.SLOW
    if outcome is Verdict.IMPOSSIBLE:
        return finding.explains is Explains.IMPOSSIBLE
    return finding.explains is Explains.FAILURE


def _unexplained(outcome: Verdict, judged: Sequence[Judged]) -> list[Finding]:
    off = [j for j in judged if j.verdict is outcome and j.reading.evidence]
    lines = [*dict.fromkeys(j.reading.evidence for j in off)][-3:]
    if outcome is Verdict.IMPOSSIBLE and off:
        top = max(off, key=lambda j: j.reading.value / (j.limit or 1.0))
        summary = f"{_value(top)}, the limit is {top.limit:.4g}"
        return [finding(summary, top.reading, id_="above-limit")]
    if outcome is Verdict.FAILED and off:
        return [finding(f"{_value(off[-1])} is no rate", *lines, id_="invalid-reading")]
    if outcome is Verdict.DEGRADED:
        band = f"{_value(off[-1])}, {_bound(off[-1])}" if off else "by the caller's verdict"
        return [finding(band, *lines, id_="below-band-unexplained")]
    return []


def _value(judged: Judged) -> str:
    unit = "us" if judged.reading.kind == "latency_us" else "GB/s"
    return f"{judged.reading.value:.4g} {unit} at {format_bytes(judged.reading.nbytes)}"


def _bound(judged: Judged) -> str:
    if judged.reading.kind == "latency_us":
        return f"the band ends at {judged.bound:.4g} us"
    return f"the band begins at {judged.bound:.4g} GB/s"
