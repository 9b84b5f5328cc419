# SPDX-License-Identifier: MIT
"""Adds to an outcome what ``busbar explain`` finds in the job's own output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from busbar.documents import NoteRow
from busbar.errors import BusbarError
from busbar.explain import Source, explain
from busbar.explain.model import Cause, Explanation
from busbar.judge.results import Outcome, Result
from busbar.judge.run import Run
from busbar.output.note import Note

UNEXPLAINED = "below-band-unexplained"


def explained(
    outcome: Outcome, files: Sequence[Path | Source], run: Run, known: Sequence[Cause] = ()
) -> Outcome:
    """Return the outcome with causes (unless it is a pass) and notes; its results name their ids.

    A finding that by itself makes a run bad, such as a dead rank, is a result of its own.
    ``run`` is what the check knows of its launches. ``known`` are causes that were found before
    the job ran.
    """
    causes = [cause.to_json() for cause in known]
    notes: list[NoteRow]
    try:
        explanations = explain(
            [file if isinstance(file, Source) else Path(os.path.relpath(file)) for file in files],
            known=run,
            verdict=outcome.verdict,
        )
    except BusbarError as error:
        notes = [Note("nothing-to-explain", str(error)).to_json()]
    else:
        found = [cause.to_json() for each in explanations for cause in each.causes]
        causes += [cause for cause in found if not (known and cause["id"] == UNEXPLAINED)]
        notes = [note.to_json() for each in explanations for note in each.notes]
        outcome = _worse(outcome, explanations)
    if not outcome.verdict.is_problem:
        causes = []
    ids = ",".join(dict.fromkeys(cause["id"] for cause in causes))
    results = tuple(
        replace(result, cause=ids) if result.verdict.is_problem else result
        for result in outcome.results
    )
    return replace(outcome, results=results, causes=tuple(causes), notes=(*outcome.notes, *notes))


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
