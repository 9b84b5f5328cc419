# SPDX-License-Identifier: MIT
"""An expectation that says how many of its numbers were fitted, and to how many readings."""

from __future__ import annotations

from dataclasses import dataclass

from busbar.expect.expectation import Expectation
from busbar.site.family import LinkClass, Transfer


@dataclass(frozen=True)
class BandedExpectation(Expectation):
    """A limit and a band, with what stands behind the band."""

    fitted: int = 0
    """Numbers that were fitted to the readings; 0 where they are the source's own."""
    readings: int = 0


_MOST_SLOWER = 1.4
"""CPUs with other work took up to 1.44 times the usual for the shortest copy within a GPU
(h200x2/gpu_aware_driver_us.log); with more, a message staged through the host would not show."""


def slowdown(band: Transfer, driver_us: float | None) -> tuple[float, tuple[str, ...]]:
    """How many times longer a latency may be than its band says, and why.

    ``driver_us`` is what the shortest copy within a GPU took in the run; None if not measured.
    """
    if not band.driver_us or not driver_us or driver_us <= band.driver_us:
        return 1.0, ()
    times = min(driver_us / band.driver_us, _MOST_SLOWER)
    return times, (
        f"latency times {times:.2f}: a copy within a GPU took {driver_us:.3g} us in this run,"
        f" {band.driver_us:g} us where the readings were taken",
    )


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
