# SPDX-License-Identifier: MIT
"""Read the results of a run back from ``results.json``, which anybody can have written."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from busbar.document import read_document
from busbar.engine.check_document import CheckDocument, Skipped
from busbar.engine.results import Outcome, Result
from busbar.verdict import Verdict, combined, worst

_PACKAGE = "lock."
"""Before the name of a package of the lock, among what a run ran with."""


@dataclass(frozen=True)
class Snapshot:
    """One run as a report shows it."""

    site: str
    time: str
    verdict: Verdict
    outcomes: tuple[Outcome, ...]
    skipped: tuple[Skipped, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    """What it ran with: of the document, and what all checks have in common."""
    delivery: str = ""
    lane: str = ""
    coverage: str = ""
    interrupted: str = ""

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What it ran with, but for the packages of the lock."""
        return tuple(each for each in self.versions if not each[0].startswith(_PACKAGE))

    @property
    def packages(self) -> tuple[tuple[str, str], ...]:
        """Name and version of each package of the lock."""
        locked = (each for each in self.versions if each[0].startswith(_PACKAGE))
        return tuple((name.removeprefix(_PACKAGE), text) for name, text in locked)

    @property
    def when(self) -> str:
        """The time for people; as it is written if it is no time."""
        try:
            time = datetime.fromisoformat(self.time)
        except ValueError:
            return self.time
        return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if time.tzinfo else self.time


def read(path: Path) -> Snapshot:
    """Return the run of a file.

    Raises ``BusbarError`` if it cannot be read or is not the results of a run.
    """
    hint = "give results.json of a run, or what busbar check --json printed"
    return of_document(read_document(path, hint, CheckDocument))


def of_document(document: CheckDocument) -> Snapshot:
    """Return the run of a document."""
    rows: defaultdict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for row in document.results:
        rows[row.check, row.partition, row.environment].append(_believable(row))
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
    measured = combined(outcome.verdict for outcome in outcomes)
    return Snapshot(
        site=document.site,
        time=document.time,
        # A file that claims a better verdict than its readings have is not believed.
        verdict=worst([document.verdict, measured]) if measured.is_problem else document.verdict,
        outcomes=tuple(outcomes),
        skipped=document.skipped,
        versions=tuple(_facts(document)),
        delivery=document.delivery,
        lane=document.lane,
        coverage=document.coverage,
        interrupted=document.interrupted or "",
    )


def _facts(document: CheckDocument) -> Iterator[tuple[str, str]]:
    known = {name: text for name, text in document.versions.items() if text}
    yield from known.items()
    of_checks = list(document.provenance.values())
    for name, text in of_checks[0].items() if of_checks else ():
        if name not in known and all(each.get(name) == text for each in of_checks):
            yield name, text


def _believable(row: Result) -> Result:
    """Return the row; a pass without a measurement is a failure."""
    value = row.value
    measured = row.metric == "correctness" or (
        value is not None and math.isfinite(value) and value > 0
    )
    if row.verdict is not Verdict.PASS or measured:
        return row
    return replace(row, verdict=Verdict.FAILED, message="the file says pass without a reading")
