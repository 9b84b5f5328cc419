# SPDX-License-Identifier: MIT
"""The document of a run of the checks: ``busbar check`` writes it, and others read it back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from busbar.document import Contradictions, Sealed
from busbar.engine.reading import Cause, Note
from busbar.engine.results import Result, verdict_of
from busbar.engine.verdicts import LARGE_BYTES
from busbar.units import past
from busbar.verdict import Verdict, combined
from busbar.words import grouped, repeated


@dataclass(frozen=True)
class _OfCheck:
    check: str
    """Check and its parameters, as ReFrame shows them."""


@dataclass(frozen=True)
class CheckCause(Cause, _OfCheck):
    """A cause of ``busbar check``."""


@dataclass(frozen=True)
class CheckNote(Note, _OfCheck):
    """A note of ``busbar check``."""


@dataclass(frozen=True)
class Skipped:
    """A check that was selected but cannot run on this site."""

    check: str
    """Check and its parameters."""
    reason: str
    """The feature that is missing, and why."""


@dataclass(frozen=True)
class ResultRow(Result):
    """One reading, or one thing that went wrong."""

    partition: str = ""
    """Partition of the site; empty if the result is not of a job."""
    environment: str = ""
    """ReFrame's environment: delivery and lane."""

    @property
    def place(self) -> tuple[str, str, str]:
        """The check, and where it ran."""
        return self.check, self.partition, self.environment

    @property
    def reading(self) -> tuple[object, ...]:
        """What was measured; empty for small sizes, several of which tools round to one."""
        large = self.low and (self.bytes or 0) >= LARGE_BYTES
        of = (self.where, self.pair, self.metric, self.buffers, self.bytes, self.series)
        return (*self.place, *of) if large else ()


@dataclass(frozen=True, kw_only=True)
class CheckDocument(Sealed):
    """The results of one run of the checks; also written to ``results.json``.

    A key with a default is missing in files of older versions.
    """

    schema: Literal["busbar-check/1"] = "busbar-check/1"
    """The schema of this document."""
    site: str
    """Name of the site."""
    time: str
    """ISO 8601, UTC."""
    delivery: str = ""
    """How the stack reached the jobs."""
    lane: str = ""
    """The UCX lane: ``ucx-1.14`` or ``ucx-current``; for a prefix, the MPI family."""
    versions: dict[str, str | None] = field(default_factory=dict)
    """``mpi``, ``ucx``, ``gpu_driver``, and one key for each benchmark."""
    results: tuple[ResultRow, ...]
    """Every reading and everything that went wrong."""
    causes: tuple[CheckCause, ...] = ()
    """Why results are not a pass."""
    skipped: tuple[Skipped, ...] = ()
    """Selected checks that did not run."""
    notes: tuple[CheckNote, ...] = ()
    """Facts that are not faults."""
    coverage: str = ""
    """How many nodes of a cluster were tested, and why others were not; empty elsewhere."""
    provenance: dict[str, dict[str, str]] = field(default_factory=dict)
    """By check: what all its jobs had, such as ``driver`` and ``lock.libfabric``."""
    node_provenance: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    """By check and ``where``, for checks with several jobs: what not all of them had."""
    sessions: tuple[str, ...] = ()
    """ReFrame's ids of the sessions of the run."""
    interrupted: str | None = None
    """The signal that ended the run: ``SIGINT``, ``SIGTERM``, ``SIGHUP``, or ``SIGKILL`` if the
    command was killed; null if the run came to its end."""
    verdict: Verdict
    """The worst verdict of the results; ``unjudged`` counts only if no result was judged."""

    def contradictions(self) -> Contradictions:
        """Yield each key that does not follow from the others, or has an impossible value."""
        past(self.time)
        for at, row in enumerate(self.results):
            yield from ((f"results.{at}.{key}", what) for key, what in row.contradictions())
            if row.series and row.series.check != row.check.partition(" ")[0]:
                yield f"results.{at}.series", f"is of check {row.series.check!a}"
        for at in repeated(row.reading or at for at, row in enumerate(self.results)):
            yield f"results.{at}", "is the same reading as an earlier result"
        yield from self._of_checks()
        judged = verdict_of_run(self.results)
        if self.verdict is not judged:
            yield "verdict", f"is {self.verdict}, but by its results it is {judged}"
        if self.interrupted and not judged.is_problem:
            yield "verdict", f"is {self.verdict}, but {self.interrupted} ended the run"

    def _of_checks(self) -> Contradictions:
        """Yield statements about checks without results, and causes of healthy checks."""
        checks = {row.check: row.verdict.is_problem for row in self.results}
        checks |= {row.check: True for row in self.results if row.verdict.is_problem}
        said = [(f"causes.{at}", each.check) for at, each in enumerate(self.causes)]
        said += [(f"notes.{at}", each.check) for at, each in enumerate(self.notes)]
        for name in ("provenance", "node_provenance"):
            said += [(f"{name}.{check}", check) for check in getattr(self, name)]
        for key, check in said:
            if check not in checks:
                yield key, "is of a check without results"
            elif key.startswith("causes") and not checks[check]:
                yield key, f"is a cause, but {check} has no problem"
        causes = {(each.check, each.id) for each in self.causes} | {(c, "") for c in checks}
        for at, row in enumerate(self.results):
            if not {(row.check, cause) for cause in row.cause.split(",")} <= causes:
                yield f"results.{at}.cause", "is not among the causes of the check"
        # A run that a signal ends lists the checks that it had begun as well.
        names = [] if self.interrupted else [each.check for each in self.skipped]
        for at in repeated([*checks, *names]):
            yield f"skipped.{at - len(checks)}.check", "has results, or is listed twice"


def verdict_of_run(rows: Iterable[ResultRow]) -> Verdict:
    """Return the verdict of a run by the results of all its checks."""
    return combined(map(verdict_of, grouped((row.place, row) for row in rows).values()))
