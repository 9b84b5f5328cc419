# SPDX-License-Identifier: MIT
"""Numbers of one line that contradict each other: a rate that is not the size over the time."""

from __future__ import annotations

import math

from busbar.expect import COLLECTIVES
from busbar.expect.bounds import factor
from busbar.parse import events
from busbar.units import format_bytes

_SLACK = 1e-3
"""Share by which numbers may differ beyond the digits that are printed."""
_JSON_DECIMALS = 3
_LEAST_WINDOWS, _LEAST_TRIPS, _LONG_S = 3, 6, 0.1


def half_unit(decimals: int) -> float:
    """Return the largest change by rounding to this number of decimals."""
    return 0.51 * 10.0**-decimals


def agrees(value: float, printed: int, low: float, high: float) -> bool:
    """Whether a number of ``printed`` decimals lies between two that are known as well."""
    unit = half_unit(printed)
    return low * (1 - _SLACK) - unit <= value <= high * (1 + _SLACK) + unit


def rate_of(nbytes: int, time_us: float, rate: float, decimals: tuple[int, int]) -> bool:
    """Whether ``rate`` in GB/s is the size over the time; ``decimals`` of time and rate."""
    unit = half_unit(decimals[0])
    if not time_us > 0:
        return not nbytes
    high = nbytes / (time_us - unit) * 1e-3 if time_us > unit else math.inf
    return agrees(rate, decimals[1], nbytes / (time_us + unit) * 1e-3, high)


def product_of(rate: float, factor: float, product: float, decimals: tuple[int, int]) -> bool:
    """Whether ``product`` is ``rate`` times ``factor``; ``decimals`` of rate and product."""
    unit = half_unit(decimals[0])
    return agrees(product, decimals[1], (rate - unit) * factor, (rate + unit) * factor)


def of_event(reading: events.ReadingEvent, start: events.Start | None) -> str:
    """Return what is wrong with a reading of our own programs, which ``start`` begins."""
    if start and reading.statistic not in ("", start.statistic):
        return f"a reading is the {reading.statistic}, the program measures the {start.statistic}"
    if reading.metric == "bandwidth" and reading.window and reading.seconds is not None:
        moved = reading.window * reading.nbytes
        if not math.isclose(moved, reading.value * reading.seconds * 1e9, rel_tol=_SLACK):
            return f"{reading.value:g} GB/s is not {moved} bytes over {reading.seconds:g} s"
    if not reading.verified and (reading.verified == 0 or (start and start.counts)):
        size = format_bytes(reading.nbytes)
        return f"no message of the {reading.metric} at {size} was compared"
    if start and start.counts and (few := _too_few(reading)):
        return few
    return _of_collective(reading, start.ranks if start else None)


def _too_few(reading: events.ReadingEvent) -> str:
    """Return what is wrong with the repetitions that a pair of ranks counts.

    It times 3 windows of messages and 3 batches of 2 round trips, or more. Only where a message
    takes half a second is a window of one message enough; ``_LONG_S`` leaves room for noise.
    """
    if reading.metric == "latency" and (reading.trips or 0) < _LEAST_TRIPS:
        return f"{reading.trips or 0} round trips were timed, not {_LEAST_TRIPS} or more"
    crawls = reading.windows and reading.window == 1 and (reading.seconds or 0) >= _LONG_S
    if reading.metric == "bandwidth" and (reading.windows or 0) < _LEAST_WINDOWS and not crawls:
        return f"{reading.windows or 0} windows were timed, not {_LEAST_WINDOWS} or more"
    return ""


def _of_collective(reading: events.ReadingEvent, ranks: int | None) -> str:
    """Return what is wrong with a collective, which has time and two rates."""
    algbw, places = reading.algbw_gb_per_s, (_JSON_DECIMALS, _JSON_DECIMALS)
    if reading.metric != "busbw" or algbw is None:
        return ""
    if reading.us is not None and not rate_of(reading.nbytes, reading.us, algbw, places):
        return f"algbw {algbw:g} is not the size over {reading.us:g} us"
    if ranks and ranks > 1 and reading.operation in COLLECTIVES:
        times = factor(reading.operation, ranks)
        if not product_of(algbw, times, reading.value, places):
            return f"busbw {reading.value:g} is not {times:.4g} times algbw {algbw:g}"
    return ""
