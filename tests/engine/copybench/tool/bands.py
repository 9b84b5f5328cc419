# SPDX-License-Identifier: MIT
"""Limit and band of a copy."""

from __future__ import annotations

from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.expect.expectation import Expectation


def bands(run: Run, reading: Reading) -> list[Expectation]:
    """Return the same band for each size."""
    return [Expectation(limit=100, low=5, typical=10, high=20, nbytes=reading.nbytes)]
