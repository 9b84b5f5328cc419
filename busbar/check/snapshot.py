# SPDX-License-Identifier: MIT
"""Read the results of a run from an untrusted ``results.json``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from busbar.document import read_document
from busbar.engine.check_document import CheckDocument, ResultRow
from busbar.engine.results import Outcome, Result, sentence
from busbar.engine.verdicts import verdict_on
from busbar.expect.expectation import Expectation
from busbar.units import past
from busbar.verdict import Verdict, combined, worst
from busbar.words import grouped

_LEAST_US, _MOST_GB_PER_S = 0.01, 1e6
"""Implausible values: below the latency between two cores, above the rate of any cluster."""
_PACKAGE = "lock."
"""Prefix of lock packages among the versions of a run."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(CheckDocument):
    """One run as shown in a report.

    ``versions`` includes the versions common to all checks; the verdict is never better than the
    readings.
    """

    results: tuple[ResultRow, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """The results, causes and notes by check."""

    @property
    def facts(self) -> list[tuple[str, str | None]]:
        """Software versions, without the packages of the lock."""
        return [each for each in self.versions.items() if not each[0].startswith(_PACKAGE)]

    @property
    def packages(self) -> list[tuple[str, str | None]]:
        """Name and version of each package of the lock."""
        every = self.versions.items()
        return [(n.removeprefix(_PACKAGE), text) for n, text in every if n.startswith(_PACKAGE)]

    @property
    def when(self) -> str:
        """The time in UTC, or the text as written if it is not a time."""
        try:
            time = datetime.fromisoformat(self.time)
        except ValueError:
            return self.time
        return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if time.tzinfo else self.time


def read(path: Path) -> Snapshot:
    """Return the run in a file.

    Raises ``BusbarError`` if the file cannot be read or does not contain the results of a run.
    """
    hint = "pass results.json of a run, or the output of busbar check --json"
    return of_document(read_document(path, hint, CheckDocument))


def of_document(document: CheckDocument) -> Snapshot:
    """Return the run in a document."""
    rows = grouped(
        ((row.check, row.partition, row.environment), _believable(row)) for row in document.results
    )
    outcomes = [
        Outcome(
            check=check,
            lane=document.lane,
            results=tuple(results),
            partition=partition,
            environment=environment,
            delivery=document.delivery,
            causes=tuple(each for each in document.causes if each.check == check),
            notes=tuple(each for each in document.notes if each.check == check),
        )
        for (check, partition, environment), results in rows.items()
    ]
    try:
        past(document.time)
    except ValueError as error:
        outcomes.append(Outcome.failed("the time of the run", document.lane, str(error)))
    # Do not trust a verdict that is better than the readings.
    measured = combined(outcome.verdict for outcome in outcomes)
    ended = [Verdict.UNKNOWN] if document.interrupted else []
    verdict = worst([document.verdict, measured, *ended])
    known = {"outcomes": tuple(outcomes), "verdict": verdict, "versions": dict(_facts(document))}
    return Snapshot(**vars(document) | known)


def _facts(document: CheckDocument) -> Iterator[tuple[str, str]]:
    known = {name: text for name, text in document.versions.items() if text}
    yield from known.items()
    of_checks = list(document.provenance.values())
    for name, text in of_checks[0].items() if of_checks else ():
        if name not in known and all(each.get(name) == text for each in of_checks):
            yield name, text


def _believable(row: Result) -> Result:
    """Return the row; a pass without a reading or band, or outside its bounds, is a failure."""
    if row.verdict is not Verdict.PASS or (row.metric == "correctness" and not row.message):
        return row
    value, low, high = row.value or 0.0, row.low, row.high
    limit = _LEAST_US if row.unit == "us" else _MOST_GB_PER_S
    limit = limit if row.limit is None else row.limit
    if row.message:
        message = f"the file claims a pass, but {row.message}"
    elif not value > 0 or not (row.bytes or 0) > 0:
        message = "the file claims a pass without a reading"
    elif low is None or high is None:
        message = "the file claims a pass without a band"
    elif not 0 < low <= high or not low <= (row.typical or low) <= high:
        message = f"the file claims a pass in a band of {low:g} to {high:g}"
    elif verdict_on(
        Expectation(limit, low, row.typical or 0.0, high, unit=row.unit), value
    ).is_problem:
        message = f"the file claims a pass, but {sentence(row)}"
    else:
        return row
    return replace(row, verdict=Verdict.FAILED, message=message)
