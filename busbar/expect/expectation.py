# SPDX-License-Identifier: MIT
"""What a reading is compared with: a limit from the topology and a band from recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from busbar.errors import BusbarError
from busbar.site.family import Band, LinkClass, Transfer
from busbar.site.model import Gpus, Proof, Site
from busbar.units import format_bytes

_PROOFS: tuple[Proof, ...] = ("none", "replay", "run")
_MOST_SLOWER = 1.4
"""Busy CPUs took up to 1.44 times the usual time for the shortest copy within a GPU
(h200x2/gpu_aware_driver_us.log). A larger factor would hide a message staged through the host."""


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
    proof: Proof = "none"
    """How far the band is proven: ``run``, ``replay`` or ``none``."""
    nbytes: int | None = None
    """The message size it holds for."""
    floor: bool = False
    """Whether ``low`` is a floor that only shows which way the data took, and not a band."""
    outside: bool = False
    """Whether no run of its class was measured: the band is a guess that condemns nothing."""
    calibrated: bool = False
    """Whether the band is the site's own calibration."""
    model: float | None = None
    """What links and family call typical if it is."""
    fitted: int = 0
    """Count of numbers fitted to the readings; 0 if the source states them."""
    readings: int = 0
    """Count of readings that the band comes from."""

    def is_exceeded(self, value: float) -> bool:
        """Return whether a reading is better than the whole band."""
        guess = self.floor or self.outside
        return not guess and (value < self.low if self.unit == "us" else value > self.high)

    @classmethod
    def at_least(cls, low: float, limit: float, **more: Any) -> Expectation:
        """Return a floor for readings without a known band; ``more``: path, sources, size."""
        return cls(limit, low, low, limit, floor=True, **more)


@dataclass(eq=False, repr=False)
class NoExpectation(BusbarError):  # noqa: N818 - an answer, not a fault
    """No data supports a band; ``limit`` in ``unit`` still holds where the topology gives one."""

    what: str
    _: KW_ONLY
    where: str = ""
    hint: str = ""
    limit: float | None = None
    unit: str = "GB/s"
    path: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    nbytes: int | None = None
    guess: Expectation | None = None

    def __post_init__(self) -> None:
        super().__init__(self.what, where=self.where, hint=self.hint)


def proven(site: Site, gpus: Gpus, band: Band) -> Proof:
    """Return the weaker proof of band and site; ``none`` if the band is of other GPUs."""
    if gpus.model not in band.models:
        return "none"
    return min(site.proof, band.proof, key=_PROOFS.index)


def coverage(bands: Sequence[Band], nbytes: int) -> str:
    """Return which sizes the data covers, if it does not cover ``nbytes``."""
    ranges = (f"{format_bytes(band.bytes[0])} to {format_bytes(band.bytes[1])}" for band in bands)
    return f"covers {', '.join(ranges)}, not {format_bytes(nbytes)}"


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


def fitted_in(link: LinkClass, bench: str) -> tuple[int, int]:
    """Count the fitted numbers of a link class's bands of a benchmark, and their readings.

    The bands of all sizes and engines count together, as they share numbers.
    """
    bands = [band for band in link.bands if band.bench == bench]
    engines = list(link.engines.values()) if bands else []
    numbers = sum(len(b.fitted) for b in bands) + sum(len(e.fitted) for e in engines)
    return numbers, sum(b.readings for b in bands) + sum(e.readings for e in engines)
