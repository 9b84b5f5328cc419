# SPDX-License-Identifier: MIT
"""What a reading is compared with: a limit from the topology and a band from recorded runs."""

from __future__ import annotations

from dataclasses import dataclass


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
    floor: bool = False
    """Whether ``low`` is a floor that only shows which way the data took, and not a band."""
    calibrated: bool = False
    """Whether the band is the site's own calibration."""
    model: float | None = None
    """What links and family call typical if it is."""
