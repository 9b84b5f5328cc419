# SPDX-License-Identifier: MIT
"""An expectation with its evidence: how many of its numbers were fitted to how many readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busbar.expect.expectation import Expectation
from busbar.site.family import Band, LinkClass, Transfer
from busbar.site.load import link_classes
from busbar.site.model import Site
from busbar.units import format_bytes


@dataclass(frozen=True)
class BandedExpectation(Expectation):
    """A limit and a band, and the evidence for the band."""

    fitted: int = 0
    """Count of numbers fitted to the readings; 0 if the source states them."""
    readings: int = 0


def coverage(bands: Sequence[Band], nbytes: int) -> str:
    """Return which sizes the data covers, where it does not cover ``nbytes``."""
    ranges = (f"{format_bytes(band.bytes[0])} to {format_bytes(band.bytes[1])}" for band in bands)
    return f"covers {', '.join(ranges)}, not {format_bytes(nbytes)}"


_MOST_SLOWER = 1.4
"""Busy CPUs took up to 1.44 times the usual time for the shortest copy within a GPU
(h200x2/gpu_aware_driver_us.log). A larger factor would hide a message staged through the host."""


def slowdown(band: Transfer, driver_us: float | None) -> tuple[float, tuple[str, ...]]:
    """Return the factor by which a latency may exceed its band, and the reason.

    ``driver_us`` is the time of the shortest copy within a GPU in the run; None if not measured.
    """
    if not band.driver_us or not driver_us or driver_us <= band.driver_us:
        return 1.0, ()
    times = min(driver_us / band.driver_us, _MOST_SLOWER)
    return times, (
        f"latency times {times:.2f}: a copy within a GPU took {driver_us:.3g} us in this run,"
        f" {band.driver_us:g} us in the reference run",
    )


def few_parameters(fitted: int, readings: int) -> bool:
    """Return whether a fit has fewer numbers than half its readings, so that it can predict.

    A band with one number fitted to one reading only repeats its source.
    """
    return fitted < readings / 2


def fitted_in(link: LinkClass, bench: str) -> tuple[int, int]:
    """Count the fitted numbers of a link class's bands of a benchmark, and their readings.

    The bands of all sizes and engines count together, as they share numbers.
    """
    bands = [band for band in link.bands if band.bench == bench]
    engines = list(link.engines.values()) if bands else []
    numbers = sum(len(b.fitted) for b in bands) + sum(len(e.fitted) for e in engines)
    return numbers, sum(b.readings for b in bands) + sum(e.readings for e in engines)


def fitted_numbers(site: Site, bench: str) -> tuple[int, int]:
    """Count the fitted numbers of a site's bands of a benchmark, and their readings."""
    classes = link_classes(site)
    links = {
        name
        for n in site.node_types.values()
        if n.gpus and n.gpus.links
        for name in n.gpus.links.classes()
    }
    links |= {nic.link_class for node in site.node_types.values() for nic in node.nics}
    counts = [fitted_in(classes[name], bench) for name in links]
    return sum(numbers for numbers, _ in counts), sum(readings for _, readings in counts)
