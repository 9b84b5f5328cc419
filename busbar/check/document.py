# SPDX-License-Identifier: MIT
"""The JSON document of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from busbar.check.listing import Match
from busbar.check.run import RunPlan
from busbar.delivery.environment import Environment
from busbar.engine import check_document
from busbar.engine.check_document import CheckCause, CheckDocument, CheckNote, ResultRow, Skipped
from busbar.engine.results import Outcome
from busbar.words import grouped


def document_of(
    site: str,
    lane: str,
    outcomes: Sequence[Outcome],
    skipped: Sequence[Match] = (),
    *,
    interrupted: str = "",
    coverage: str = "",
    sessions: Sequence[str] = (),
) -> CheckDocument:
    """Return the document for ``--json``; its keys are stable."""
    versions: dict[str, str | None] = {"mpi": None, "ucx": None, "gpu_driver": None}
    for outcome in outcomes:
        versions |= {name: value for name, value in outcome.versions.items() if value}
    rows = tuple(
        ResultRow(**vars(row), partition=o.partition, environment=o.environment)
        for o in outcomes
        for row in o.results or Outcome.failed(o.check, lane, "it left no result").results
    )
    return CheckDocument(
        site=site,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        delivery=next((o.delivery for o in outcomes if o.delivery), ""),
        lane=next((o.lane for o in outcomes if o.delivery), lane),
        versions=versions,
        results=rows,
        causes=tuple(CheckCause(o.check, **vars(each)) for o in outcomes for each in o.causes),
        skipped=tuple(Skipped(match.name, match.reason) for match in skipped),
        notes=tuple(CheckNote(o.check, **vars(each)) for o in outcomes for each in o.notes),
        coverage=coverage,
        **_provenance(outcomes),
        sessions=tuple(sessions),
        interrupted=interrupted or None,
        verdict=check_document.verdict_of_run(rows),
    )


def _provenance(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the common facts of each check's jobs, and what differs between nodes."""
    jobs = grouped((each.check, each) for each in outcomes if each.provenance)
    common = {
        check: dict(set.intersection(*(set(job.provenance.items()) for job in each)))
        for check, each in jobs.items()
    }
    return {
        "provenance": {check: dict(sorted(facts.items())) for check, facts in common.items()},
        "node_provenance": {
            check: {
                row.where: {
                    name: value
                    for name, value in job.provenance.items()
                    if name not in common[check]
                }
                for job in each
                for row in job.results
            }
            for check, each in jobs.items()
            if len(each) > 1
        },
    }


def missing_features(
    plan: RunPlan, environments: Sequence[Environment], required: Sequence[str]
) -> list[Outcome]:
    """Return a failed outcome for each required feature that no environment has."""
    available = "; ".join(f"{each.name} has {', '.join(each.features)}" for each in environments)
    return [
        Outcome.failed(
            f"require {name}",
            plan.lane,
            f"feature {name} is required but not available: {available}",
        )
        for name in required
        if not any(name in each.features for each in environments)
    ]
