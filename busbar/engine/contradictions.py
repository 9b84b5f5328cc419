# SPDX-License-Identifier: MIT
"""Numbers of one line that contradict each other: a rate that is not the size over the time."""

from __future__ import annotations

import math

from busbar.expect import COLLECTIVES
from busbar.expect.bounds import factor
from busbar.parse import events
from busbar.parse.tables import beside
from busbar.units import format_bytes

_SLACK = 1e-3
"""Share by which numbers may differ beyond the digits that are printed."""
_JSON_DECIMALS = 3
_LEAST = beside(__file__)


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
    metric, size = reading.metric, format_bytes(reading.nbytes)
    if reading.verified == 0:
        return f"no message of the {metric} at {size} was compared"
    if start and start.counts and (few := _too_few(reading)):
        return f"the {metric} at {size} {few}"
    return _of_collective(reading, start.ranks if start else None) if metric == "busbw" else ""


def _too_few(reading: events.ReadingEvent) -> str:
    """Return which of the repetitions that a program counts is missing, or too small."""
    crawls = reading.window == 1 and (reading.seconds or 0) >= _LEAST["crawls"]["seconds"]
    for name, least in _LEAST["crawls" if crawls else reading.metric].items():
        value = getattr(reading, name)
        if value is None or value < least:
            return f"has {name} {value}, not {least} or more" if value else f"lacks {name}"
    return ""


def _of_collective(reading: events.ReadingEvent, ranks: int | None) -> str:
    """Return what is wrong with a collective, which has time and two rates."""
    algbw, us = reading.algbw_gb_per_s, reading.us
    places = _JSON_DECIMALS, _JSON_DECIMALS
    if algbw is None or us is None:
        return "a bus bandwidth lacks its time or its other rate"
    if not rate_of(reading.nbytes, us, algbw, places):
        return f"algbw {algbw:g} is not the size over {us:g} us"
    if ranks and ranks > 1 and reading.operation in COLLECTIVES:
        times = factor(reading.operation, ranks)
        if not product_of(algbw, times, reading.value, places):
            return f"busbw {reading.value:g} is not {times:.4g} times algbw {algbw:g}"
    return ""
