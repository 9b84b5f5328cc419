# SPDX-License-Identifier: MIT
"""A night as text for mail."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.boundary import one_line
from busbar.cluster.nightly.night import Night, NightFinding, NightlyDocument
from busbar.redact import redact
from busbar.slurm.hostlist import fold
from busbar.verdict import Verdict

_MOST = 10
"""Findings of one stage in the summary."""


def summary(night: Night, state: NightlyDocument) -> list[str]:
    """Return the text for mail: verdict, stages, nodes that were not tested, the report's text."""
    return [one_line(redact(line)) for line in _lines(night, state)]


def _lines(night: Night, state: NightlyDocument) -> Iterator[str]:
    yield f"busbar nightly: {state.site}, partition {state.partition}: {state.verdict}"
    for name in state.names:
        stage = state.stage(name)
        if stage is None:
            yield f"{name}: {Verdict.NOT_RUN}: {why_missing(state)}"
            continue
        took = f" ({stage.seconds:.0f} s)" if stage.begun else ""
        yield f"{name}: {stage.verdict}: {stage.message}{took}"
        wrong = [each for each in stage.findings if each.verdict.is_problem]
        if len(wrong) > 1:
            yield from (f"  {_text(each)}" for each in wrong[:_MOST])
        if len(wrong) > _MOST:
            yield f"  and {len(wrong) - _MOST} more"
    if state.left_out:
        yield f"failed the gate, not tested further: {fold(sorted(state.left_out))}"
    for node in state.unusable[:_MOST]:
        yield f"not tested: {node}"
    if len(state.unusable) > _MOST:
        yield f"not tested: {len(state.unusable) - _MOST} more"
    yield from state.records
    if state.interrupted:
        yield f"{state.interrupted} ended the night; --resume continues it"
    if state.summary:
        yield ""
        yield from state.summary
        yield ""
    yield f"report: {state.report}" if state.report else f"no report; logs: {night.directory}"


def why_missing(state: NightlyDocument) -> str:
    """Return why a stage has no result."""
    return f"{state.interrupted} ended the night before it" if state.interrupted else "no result"


def _text(finding: NightFinding) -> str:
    return ": ".join(filter(None, (finding.where, finding.verdict, finding.message)))
