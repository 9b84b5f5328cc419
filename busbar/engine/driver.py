# SPDX-License-Identifier: MIT
"""How far the driver's time can excuse a slow latency: it must fit the other times of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from busbar.engine.reading import Reading

_SHORTEST_MESSAGE = 0.9
"""A message between GPUs that copies take part in is no faster than this share of the shortest
copy: 0.95 to 1.15 on idle and on loaded CPUs (h200x2/gpu_aware_driver_us.log)."""
_UNEVEN = 1.2
"""So much may the CPUs of one rank be slower than those of the run in the middle: 1.17 there."""
_FEW = 3


def plausible(readings: Iterable[Reading]) -> list[Reading]:
    """Return the readings; a driver's time that the run contradicts is lowered or left out."""
    readings = [
        replace(each, driver_us=None)
        if each.driver_us and each.driver_us * _SHORTEST_MESSAGE > each.value
        else each
        for each in readings
    ]
    times = [each.driver_us for each in readings if each.driver_us]
    most = _UNEVEN * median(times) if len(times) >= _FEW else None
    return [
        replace(each, driver_us=min(each.driver_us, most)) if each.driver_us and most else each
        for each in readings
    ]
