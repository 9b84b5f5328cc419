# SPDX-License-Identifier: MIT
"""The verdicts, in order of severity."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """The outcome of a reading or a run."""

    PASS = "pass"
    UNKNOWN = "unknown"
    """The readings scatter too much to say either; never a pass."""
    DEGRADED = "degraded"
    """Correct, but worse than the band."""
    IMPOSSIBLE = "impossible"
    """Beyond what the links can carry: the measurement is wrong."""
    FAILED = "failed"
    """Wrong data, a missing metric, or the run did not do what was asked."""


_SEVERITY = (Verdict.PASS, Verdict.UNKNOWN, Verdict.DEGRADED, Verdict.IMPOSSIBLE, Verdict.FAILED)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The most severe verdict; ``failed`` for none: no measurement is never a pass."""
    return max(verdicts, key=_SEVERITY.index, default=Verdict.FAILED)
