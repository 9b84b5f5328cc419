# SPDX-License-Identifier: MIT
"""An expectation that says how many of its numbers were fitted, and to how many readings."""

from __future__ import annotations

from dataclasses import dataclass

from busbar.site.family import LinkClass
from busbar.verdict import Expectation


@dataclass(frozen=True)
class Banded(Expectation):
    """A limit and a band, with what stands behind the band."""

    fitted: int = 0
    """Numbers that were fitted to the readings; 0 where they are the source's own."""
    readings: int = 0


def few_parameters(fitted: int, readings: int) -> bool:
    """Whether a fit says more than its readings: fewer numbers than half of them.

    A band of one reading and one number repeats its source; it predicts nothing.
    """
    return fitted < readings / 2


def fitted_in(link: LinkClass, bench: str) -> tuple[int, int]:
    """How many numbers of a link class's bands of a benchmark were fitted, to how many readings.

    The bands of several sizes and engines stand together, as they share numbers.
    """
    bands = [band for band in link.bands if band.bench == bench]
    engines = list(link.engines.values()) if bands else []
    numbers = sum(len(b.fitted) for b in bands) + sum(len(e.fitted) for e in engines)
    return numbers, sum(b.readings for b in bands) + sum(e.readings for e in engines)
