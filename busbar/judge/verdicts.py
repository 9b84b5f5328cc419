# SPDX-License-Identifier: MIT
"""The verdict on one reading. `busbar check` and `busbar explain` both get theirs here."""

from __future__ import annotations

from busbar.expect.expectation import Expectation
from busbar.verdict import Verdict


def verdict_on(expectation: Expectation, value: float) -> Verdict:
    """Compare one reading, in the unit of ``expectation``, with its limit and band."""
    if not value > 0:  # NaN too: a reading that is not a number is not a measurement
        return Verdict.FAILED
    if expectation.unit == "us":
        if value < expectation.limit:
            return Verdict.IMPOSSIBLE
        return Verdict.DEGRADED if value > expectation.high else Verdict.PASS
    if value > expectation.limit:
        return Verdict.IMPOSSIBLE
    return Verdict.DEGRADED if value < expectation.low else Verdict.PASS
