# SPDX-License-Identifier: MIT
"""The axes of a picture: where a value is, which ticks have a label, how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from busbar.units import format_bytes

_LEAST_SPAN = 1.6
"""Highest over lowest value of an axis: noise of one percent must not fill a picture."""
_ROOM = 50
"""The least distance between the labels of two sizes."""
_MANTISSAS = (1.0, 2.0, 5.0)
_FINE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


@dataclass(frozen=True)
class Tick:
    """A labelled place of an axis."""

    at: float
    """In the coordinates of the picture."""
    label: str


@dataclass(frozen=True)
class LogScale:
    """Map positive values onto coordinates, each factor onto the same distance."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value; values beyond the ends are at the ends."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)


def values_scale(values: Iterable[float], start: float, end: float) -> LogScale:
    """Return a scale that contains all values, with some room at both ends."""
    known = [value for value in values if drawable(value)]
    low, high = min(known, default=1.0), max(known, default=10.0)
    if high / low < _LEAST_SPAN:
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = middle / math.sqrt(_LEAST_SPAN), middle * math.sqrt(_LEAST_SPAN)
    room = (high / low) ** 0.06
    return LogScale(low / room, high * room, start, end)


def drawable(value: float | None) -> bool:
    """Whether a value has a place on a logarithmic axis."""
    return value is not None and 1e-30 < value < 1e30


def value_ticks(scale: LogScale, most: int = 5) -> list[Tick]:
    """Return ticks at 1, 2 and 5 times powers of ten, fewer on a long axis, more on a short."""
    for mantissas in ((1.0,), _MANTISSAS, _FINE):
        found = list(_round_values(scale, mantissas))
        if len(found) >= 3:
            break
    step = max(1, math.ceil(len(found) / most))
    return [Tick(scale.at(value), number(value)) for value in found[::step]]


def _round_values(scale: LogScale, mantissas: tuple[float, ...]) -> Iterable[float]:
    for exponent in range(
        math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1
    ):
        for mantissa in mantissas:
            value = mantissa * 10.0**exponent
            if scale.low <= value <= scale.high:
                yield value


def size_ticks(sizes: Iterable[int], scale: LogScale, most: int = 5) -> list[Tick]:
    """Return ticks at powers of two, an equal number of doublings apart, at most ``most``."""
    known = sorted(set(sizes))
    apart = (abs(scale.at(b) - scale.at(a)) for a, b in pairwise(known))
    if len(known) <= most and min(apart, default=_ROOM) >= _ROOM:
        return [Tick(scale.at(size), format_bytes(size)) for size in known]
    first, last = math.ceil(math.log2(known[0])), math.floor(math.log2(known[-1]))
    # Sizes that are all some doublings apart have their ticks at sizes.
    doublings = math.gcd(*(size.bit_length() - 1 - first for size in known)) or 1
    step = doublings * max(1, math.ceil((last - first + 1) / (most * doublings)))
    return [Tick(scale.at(2**n), format_bytes(2**n)) for n in range(first, last + 1, step)]


def number(value: float | None, digits: int = 4) -> str:
    """Return a number for people, without an exponent if possible; empty for none."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else str(value)
    text = f"{value:.{digits}g}"
    if "e" not in text:
        return text
    return f"{value:.0f}" if 1 <= abs(value) < 1e9 else text
