# SPDX-License-Identifier: MIT
"""Verdicts: what a reading means against the limit and the band that were expected of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Expectation:
    """What a reading is judged by: a physical limit and the band seen on healthy machines.

    For a bandwidth (``unit`` ``"GB/s"``, 1e9 bytes a second) readings above ``limit`` are
    impossible and those below ``low`` degraded; for a latency (``unit`` ``"us"``) it is the other
    way round: below ``limit`` is impossible, above ``high`` degraded.
    """

    limit: float
    low: float
    typical: float
    high: float
    unit: str = "GB/s"
    path: tuple[str, ...] = ()
    """The links that the bytes take, in order, the binding one marked."""
    sources: tuple[str, ...] = ()
    """Where each number comes from."""
    proof: str = "none"
    """How far the band is proven: ``run``, ``replay`` or ``none``."""
    nbytes: int | None = None
    """The message size it holds for."""

    def judge(self, value: float) -> Verdict:
        """The verdict on one reading in ``unit``."""
        if not value > 0:  # NaN too: a reading that is no number is no measurement
            return Verdict.FAILED
        if self.unit == "us":
            if value < self.limit:
                return Verdict.IMPOSSIBLE
            return Verdict.DEGRADED if value > self.high else Verdict.PASS
        if value > self.limit:
            return Verdict.IMPOSSIBLE
        return Verdict.DEGRADED if value < self.low else Verdict.PASS


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The most severe verdict; ``failed`` for none: no measurement is never a pass."""
    return max(verdicts, key=_SEVERITY.index, default=Verdict.FAILED)
