# SPDX-License-Identifier: MIT
"""Read the results of a run from an untrusted ``results.json``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from busbar.document import read_document
from busbar.engine.check_document import CheckDocument, ResultRow
from busbar.engine.results import Outcome
from busbar.words import grouped

_PACKAGE = "lock."
"""Prefix of lock packages among the versions of a run."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(CheckDocument):
    """One run as shown in a report.

    ``versions`` includes the versions common to all checks.
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
        """The time in UTC."""
        time = datetime.fromisoformat(self.time)
        return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if time.tzinfo else self.time


def read(path: Path) -> Snapshot:
    """Return the run in a file.

    Raises ``BusbarError`` if the file cannot be read or does not contain the results of a run.
    """
    hint = "pass results.json of a run, or the output of busbar check --json"
    return of_document(read_document(path, hint, CheckDocument))


def of_document(document: CheckDocument) -> Snapshot:
    """Return the run in a document."""
    rows = grouped((row.place, row) for row in document.results)
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
    known = {"outcomes": tuple(outcomes), "versions": dict(_facts(document))}
    return Snapshot(**vars(document) | known)


def _facts(document: CheckDocument) -> Iterator[tuple[str, str]]:
    known = {name: text for name, text in document.versions.items() if text}
    yield from known.items()
    of_checks = list(document.provenance.values())
    for name, text in of_checks[0].items() if of_checks else ():
        if name not in known and all(each.get(name) == text for each in of_checks):
            yield name, text
