# SPDX-License-Identifier: MIT
"""Adds to an outcome what ``busbar explain`` finds in the job's own output."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from busbar.engine.reading import Cause, Note, redacted
from busbar.engine.results import Outcome, Result
from busbar.engine.run import Run
from busbar.errors import BusbarError
from busbar.explain import Source, explain
from busbar.explain.model import Explanation
from busbar.units import format_bytes
from busbar.verdict import Verdict

UNEXPLAINED = "below-band-unexplained"


def explained(
    outcome: Outcome,
    files: Sequence[Path | Source],
    run: Run,
    known: Sequence[Cause] = (),
    versions: Mapping[str, str] | None = None,
) -> Outcome:
    """Return the outcome with causes (unless it is a pass) and notes; its results name their ids.

    A finding that by itself makes a run bad, such as a dead rank, is a result of its own.
    ``run`` is what the check knows of its launches. ``known`` are causes that were found before
    the job ran. ``versions`` are those that the libraries must have.
    """
    causes = [redacted(cause) for cause in known]
    notes: list[Note]
    try:
        explanations = explain(
            [file if isinstance(file, Source) else Path(os.path.relpath(file)) for file in files],
            known=run,
            verdict=outcome.verdict,
            asked=versions,
        )
    except BusbarError:  # nothing that it knows: the outcome has said what went wrong
        notes = []
    else:
        found = [redacted(cause) for each in explanations for cause in each.causes]
        causes += [cause for cause in found if not (known and cause.id == UNEXPLAINED)]
        notes = [redacted(note) for each in explanations for note in each.notes]
        outcome = _worse(outcome, explanations)
    if not outcome.verdict.is_problem:
        causes = []
    known_ids = {note.id for note in notes}
    notes += [note for note in _without_band(outcome) if note.id not in known_ids]
    ids = ",".join(dict.fromkeys(cause.id for cause in causes))
    results = tuple(
        replace(result, cause=ids) if result.verdict.is_problem else result
        for result in outcome.results
    )
    return replace(outcome, results=results, causes=tuple(causes), notes=(*outcome.notes, *notes))


def _without_band(outcome: Outcome) -> Iterator[Note]:
    """Count the readings that nothing judged: a pass says nothing of them."""
    measured = [row for row in outcome.results if row.value is not None]
    unjudged = [row for row in measured if row.verdict is Verdict.UNJUDGED]
    if unjudged:
        sizes = ", ".join(dict.fromkeys(format_bytes(row.bytes or 0) for row in unjudged))
        summary = f"{len(unjudged)} of {len(measured)} readings have no band: {sizes}"
        yield Note("no-band", summary)


def _worse(outcome: Outcome, explanations: Sequence[Explanation]) -> Outcome:
    """Add a result for each explanation whose findings are worse than the outcome."""
    rows = [
        Result(
            outcome.check,
            each.verdict,
            message="; ".join(f"{cause.id}: {cause.summary}" for cause in each.causes),
        )
        for each in explanations
        if each.verdict.is_problem and each.verdict.severity > outcome.verdict.severity
    ]
    return replace(outcome, results=(*outcome.results, *rows))
