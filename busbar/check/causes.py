# SPDX-License-Identifier: MIT
"""Read a job's output, and add its causes to the outcome."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from busbar.engine.collect import add_context, joined, read, show
from busbar.engine.inputs import named
from busbar.engine.job_output import JobOutput
from busbar.engine.judge import JudgedLaunch
from busbar.engine.reading import Cause, Note, redacted
from busbar.engine.results import Outcome, Result
from busbar.engine.run import Run
from busbar.errors import BusbarError
from busbar.explain.core import explain_launch, explain_output
from busbar.explain.model import Explanation
from busbar.explain.rulebook import PATTERNS
from busbar.parse.text import Source
from busbar.units import format_bytes
from busbar.verdict import Verdict

UNEXPLAINED = "below-band-unexplained"

show_launch = partial(show, more=PATTERNS)
"""Read the output of a launch, with all messages that indicate causes."""


def source_of(path: Path) -> Source:
    """Return a file name for people: relative to the working directory."""
    (source,) = named(Path(os.path.relpath(path)))
    return source


def read_rest(files: Iterable[Source | JobOutput]) -> list[JobOutput]:
    """Return the messages in files that belong to no launch; skip unreadable files."""
    outputs: list[JobOutput] = []
    for file in files:
        with suppress(BusbarError, OSError):  # the judged output shows what went wrong
            outputs += [file] if isinstance(file, JobOutput) else read(file, PATTERNS)
    return outputs


def explained(
    outcome: Outcome,
    launches: Sequence[JudgedLaunch],
    rest: Sequence[JobOutput],
    run: Run,
    *,
    known: Sequence[Cause] = (),
    versions: Mapping[str, str] | None = None,
) -> Outcome:
    """Return the outcome with causes (unless it passed) and notes; its results refer to them.

    Causes are derived from the judged output of ``launches`` and from the ``rest`` of the job's
    files. A finding that makes a run bad, such as a dead rank, becomes a separate result. ``run``
    holds the check's facts about its launches. ``known`` are causes found before the job ran.
    ``versions`` are the required library versions.
    """
    asked = versions or {}
    shown = [each for each in launches if not each.shown.facts.empty]
    if shown:
        add_context([each.shown.facts for each in shown], rest)
        explanations = [explain_launch(each, outcome.verdict, asked) for each in shown]
    else:
        runs = [each for each in joined(rest) if not each.empty]
        explanations = [explain_output(each, run, outcome.verdict, asked=asked) for each in runs]
    found = _once(redacted(cause) for each in explanations for cause in each.causes)
    causes = [redacted(cause) for cause in known]
    causes += [cause for cause in found if not (known and cause.id == UNEXPLAINED)]
    notes = _once(redacted(note) for each in explanations for note in each.notes)
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


_Said = TypeVar("_Said", Note, Cause)


def _once(said: Iterable[_Said]) -> list[_Said]:
    """Merge what launches have in common, with the lines of the first launch."""
    found: dict[tuple[str, str], _Said] = {}
    for each in said:
        found.setdefault((each.id, each.summary), each)
    return list(found.values())


def _without_band(outcome: Outcome) -> Iterator[Note]:
    """Count the readings that were not judged: a pass does not cover them."""
    measured = [row for row in outcome.results if row.value is not None]
    unjudged = [row for row in measured if row.verdict is Verdict.UNJUDGED]
    if unjudged:
        sizes = ", ".join(dict.fromkeys(format_bytes(row.bytes or 0) for row in unjudged))
        summary = f"{len(unjudged)} of {len(measured)} readings have no band: {sizes}"
        yield Note("no-band", summary)


def _worse(outcome: Outcome, explanations: Sequence[Explanation]) -> Outcome:
    """Add a result for each explanation with findings worse than the outcome."""
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
