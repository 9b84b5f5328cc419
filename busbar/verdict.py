# SPDX-License-Identifier: MIT
"""The verdicts, their order of severity, and their colours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Verdict(StrEnum):
    """The outcome of a reading or a run, in order of severity."""

    PASS = "pass"
    UNJUDGED = "unjudged"
    """Measured, but no reference is known to compare it with."""
    NOT_RUN = "not run"
    """Nothing was measured: the scheduler refused or cancelled the job, or it waited too long."""
    UNKNOWN = "unknown"
    """Other programs slowed the readings, they scatter too much, or the run was interrupted."""
    DEGRADED = "degraded"
    """Correct, but worse than the band."""
    IMPOSSIBLE = "impossible"
    """Beyond what the links can carry: the measurement or the site is wrong."""
    FAILED = "failed"
    """Wrong data, a missing reading, or the run did not do what was requested."""

    @property
    def severity(self) -> int:
        """0 for ``pass``, higher for worse verdicts."""
        return _SEVERITY[self]

    @property
    def is_problem(self) -> bool:
        """Whether it indicates a fault of the machine or the measurement."""
        return self.severity > _SEVERITY[Verdict.UNJUDGED]


_SEVERITY = {verdict: severity for severity, verdict in enumerate(Verdict)}
STYLES: Mapping[Verdict, str] = {
    Verdict.PASS: "green",
    Verdict.UNJUDGED: "blue",
    Verdict.NOT_RUN: "cyan",
    Verdict.UNKNOWN: "cyan",
    Verdict.DEGRADED: "yellow",
    Verdict.IMPOSSIBLE: "magenta",
    Verdict.FAILED: "red",
}
"""Terminal style of each verdict, for rich."""

EXIT_NOT_RUN = 2
EXIT_UNJUDGED = 3
EXIT_STATUSES = (
    "Exit status: 0 pass, 1 unknown or worse, 2 not run, invalid input or nothing to do,"
    " 3 unjudged."
)
"""For the help of the commands that end with a verdict."""


def exit_status(verdict: Verdict, *, require_bands: bool = False) -> int:
    """Return the exit status of a command: 0 for pass, 3 unjudged, 2 not run, 1 for worse.

    With ``require_bands`` it is also 1 for unjudged.
    """
    if verdict is Verdict.NOT_RUN:
        return EXIT_NOT_RUN
    if verdict is Verdict.UNJUDGED:
        return 1 if require_bands else EXIT_UNJUDGED
    return int(verdict.is_problem)


def verdict_on_rate(value: float, limit: float, low: float, *, floor: bool) -> Verdict:
    """Compare a rate with what the links can carry and with the start of its band."""
    if not value > 0:  # NaN too: a reading that is not a number is not a measurement
        return Verdict.FAILED
    if value > limit:
        return Verdict.IMPOSSIBLE
    if value < low:
        return Verdict.DEGRADED
    # Above a floor nothing says that it is fast enough.
    return Verdict.UNJUDGED if floor else Verdict.PASS


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the most severe verdict; ``failed`` for none: no measurement is never a pass."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.FAILED)


def combined(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict of a run from the verdicts of its parts.

    The worst problem decides. A run without one passes if at least one part was judged.
    """
    parts = list(verdicts)
    if parts and not worst(parts).is_problem:
        return Verdict.PASS if Verdict.PASS in parts else Verdict.UNJUDGED
    return worst(parts)
