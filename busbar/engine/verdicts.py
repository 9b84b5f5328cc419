# SPDX-License-Identifier: MIT
"""The verdict on one reading. `busbar check` and `busbar explain` both get theirs here."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from busbar.engine.reading import Reading
from busbar.errors import BusbarError
from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.units import format_bytes
from busbar.verdict import Verdict, verdict_on_rate

Expect = Callable[[Reading], Expectation]
"""Return the limit and band of a reading; ``NoExpectation`` if no band is known."""

LARGE_BYTES = 1 << 20
"""Tools print the rates of smaller messages as 0.00."""
GUESS = 0.5
"""A reading below a band that is a guess is unjudged down to this share of the band."""
_LONGEST_US = 3.6e9
_DIP = 0.9
"""A bus bandwidth that falls below this share of its peak at a larger size is a dip: healthy runs
on 4 x H200 and 2 x p4d stay above 0.97, 2 x 8 H20 on a broken network fell to 0.70."""


_LONGER = 2.0
"""In healthy runs a message takes at most 0.97 of the time of a larger one, and 1.21 with all
ranks on one core (h200x4/nccl_one_core.log)."""


@dataclass(frozen=True)
class Judged:
    """A reading with its verdict."""

    reading: Reading
    verdict: Verdict
    expectation: Expectation | None = None
    """None if no band is known."""
    limit: float | None = None
    """What the links can carry, in the unit of the reading; None if that is not known either."""
    why: str = ""
    """Why no band is known."""

    @property
    def is_slow(self) -> bool:
        """Whether the reading is worse than its band, for whatever reason."""
        return self.verdict in (Verdict.DEGRADED, Verdict.UNKNOWN)

    @property
    def is_beyond(self) -> bool:
        """Whether the reading is better than its band and within the limit."""
        band = self.expectation
        passed = self.verdict is Verdict.PASS
        return passed and band is not None and band.is_exceeded(self.reading.value)

    @property
    def share(self) -> float:
        """How much of its band's end the reading reaches: 1 is just enough."""
        value = max(self.reading.value, 1e-9)
        latency = self.expectation is not None and self.expectation.unit == "us"
        return self.bound / value if latency else value / max(self.bound, 1e-9)

    @property
    def described(self) -> str:
        """The reading and its band in words."""
        value = f"{self.reading.value:.4g} at {format_bytes(self.reading.nbytes)}"
        band = self.expectation
        return f"{value}, band {band.low:.4g} .. {band.high:.4g} {band.unit}" if band else value

    @property
    def bound(self) -> float:
        """The end of the band that the reading must reach: GB/s at least or us at most."""
        if self.expectation is None:
            return 0.0
        latency = self.expectation.unit == "us"
        return self.expectation.high if latency else self.expectation.low


def common_end(
    bad: Iterable[tuple[int, int] | None], every: Iterable[tuple[int, int] | None]
) -> int | None:
    """Return the end that all bad pairs of ends share, and not all pairs; None without one."""
    slow, pairs = ({frozenset(ends) for ends in each if ends} for each in (bad, every))
    shared = frozenset.intersection(*slow) if 1 < len(slow) < len(pairs) else ()
    return min(shared) if len(shared) == 1 else None


def shortfall(
    value: float, unit: str, nbytes: int, *, edge: float | None, limit: float | None = None
) -> str:
    """Return by how much a reading misses its band, or exceeds its ``limit``, as a predicate.

    ``edge`` is the end of the band that it must reach.
    """
    size = f" at {format_bytes(nbytes)}" if nbytes else ""
    if limit is not None:
        return f"shows {value:.4g} {unit}{size}, beyond the limit of {limit:.4g} {unit}"
    if edge is None:
        return f"shows {value:.4g} {unit}{size}"
    if unit == "us":
        return f"takes {value:.4g} us{size} instead of at most {edge:.4g}"
    return f"reaches {value:.4g} of {edge:.4g} {unit}{size}"


def verdict_on(expectation: Expectation, value: float) -> Verdict:
    """Compare one reading, in the unit of ``expectation``, with its limit and band."""
    limit, low, high = expectation.limit, expectation.low, expectation.high
    if expectation.unit != "us":
        verdict = verdict_on_rate(value, limit, low, floor=expectation.floor)
        guessed = expectation.outside and value >= low * GUESS
        return Verdict.UNJUDGED if verdict is Verdict.DEGRADED and guessed else verdict
    if not value > 0:
        return Verdict.FAILED
    if value < limit:
        return Verdict.IMPOSSIBLE
    return Verdict.DEGRADED if value > high else Verdict.PASS


def judge_reading(reading: Reading, expect: Expect) -> Judged:
    """Judge one reading by its expectation, or only by the limit if no band is known."""
    try:
        expectation = expect(reading)
    except BusbarError as missing:
        return without_band(reading, missing)
    if reading.value == 0 and reading.kind == "busbw" and reading.nbytes < LARGE_BYTES:
        return without_band(reading, NoExpectation("the tool prints no digit of so low a rate"))
    verdict = verdict_on(expectation, reading.value)
    why = expectation.sources[0] if expectation.floor and expectation.sources else ""
    return Judged(reading, verdict, expectation, expectation.limit, why)


def without_band(reading: Reading, missing: BusbarError) -> Judged:
    """Judge a reading for which no band is known: it can only be wrong or impossible."""
    latency = reading.kind == "latency_us"
    limit = None
    if isinstance(missing, NoExpectation) and (missing.unit == "us") == latency:
        limit = missing.limit
    verdict = Verdict.UNJUDGED
    zero = not reading.value > 0 and (latency or reading.nbytes >= LARGE_BYTES)
    if zero or (latency and reading.value > _LONGEST_US):
        verdict = Verdict.FAILED
    elif limit and (reading.value < limit if latency else reading.value > limit):
        verdict = Verdict.IMPOSSIBLE
    return Judged(reading, verdict, limit=limit, why=str(missing))


def judge_readings(readings: Iterable[Reading], expect: Expect) -> list[Judged]:
    """Judge every reading; ``algbw`` is the same measurement as ``busbw`` and is left out."""
    return [judge_reading(each, expect) for each in readings if each.kind != "algbw"]


def against_larger(judged: Iterable[Judged]) -> list[Judged]:
    """Return the readings; a bus bandwidth without a band is judged by larger messages.

    A message must not take much longer than a larger one of the same run.
    """
    found = list(judged)
    fastest: dict[tuple[object, ...], Reading] = {}
    """By series: of the larger messages the one that took the least time."""
    places = sorted(range(len(found)), key=lambda at: -found[at].reading.nbytes)
    for _, group in itertools.groupby(places, key=lambda at: found[at].reading.nbytes):
        of_a_size = list(group)
        for at in of_a_size:
            found[at] = _against(found[at], fastest.get(_series(found[at].reading)))
        for reading in (found[at].reading for at in of_a_size):
            if reading.kind == "busbw" and 0 < reading.value < math.inf:
                known = fastest.get(_series(reading), reading)
                of_both = (reading, known)  # the first of equals
                fastest[_series(reading)] = min(of_both, key=lambda each: each.nbytes / each.value)
    return found


def _series(reading: Reading) -> tuple[object, ...]:
    return reading.in_place, reading.operation


def _against(judged: Judged, fastest: Reading | None) -> Judged:
    """Judge a reading without a band by the time of a larger message."""
    small = judged.reading
    if judged.verdict is not Verdict.UNJUDGED or small.nbytes < LARGE_BYTES or not fastest:
        return judged
    as_fast = small.nbytes / (fastest.nbytes / fastest.value)
    if not small.value * _LONGER < as_fast:
        return judged
    why, low = f"{fastest.nbytes} bytes took less time in this run", as_fast / _LONGER
    limit = judged.limit or as_fast
    band = Expectation(limit, low, as_fast, as_fast, path=(), sources=(why,), nbytes=small.nbytes)
    return replace(judged, verdict=Verdict.DEGRADED, expectation=band, why=why)


@dataclass(frozen=True)
class Dip:
    """A series of bus bandwidths that falls after its peak."""

    peak: Reading
    last: Reading
    """At the largest size."""

    @property
    def share(self) -> float:
        """What is left of the peak."""
        return self.last.value / self.peak.value

    @property
    def alone_us(self) -> float:
        """The time of an operation of the largest size at the rate of the peak."""
        return self.last.nbytes / self.peak.value * 1e-3

    @property
    def text(self) -> str:
        """The fall in words."""
        first, last = (
            f"{r.value:.4g}{unit} at {format_bytes(r.nbytes)}"
            for r, unit in ((self.peak, " GB/s"), (self.last, ""))
        )
        return f"bus bandwidth falls from {first} to {last}"


def dips(judged: Iterable[Judged]) -> Iterator[Dip]:
    """Yield each series of bus bandwidths that falls after its peak.

    A last reading that reaches its band is fast enough, however much faster another size is.
    """
    series: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
    for each in judged:
        reading = each.reading
        if reading.kind == "busbw" and reading.nbytes >= LARGE_BYTES:
            series[_series(reading)].append(each)
    for rows in series.values():
        end = max(rows, key=lambda each: each.reading.nbytes)
        last, peak = end.reading, max((each.reading for each in rows), key=lambda r: r.value)
        # Sizes that are nearly the same scatter. Rates that no longer fall at the end are those
        # of another algorithm, which a band would know.
        after = [each.reading.value for each in rows if each.reading.nbytes > peak.nbytes]
        falls = last.nbytes >= 2 * peak.nbytes and (end.expectation or last.value <= min(after))
        if falls and last.value < _DIP * peak.value and end.verdict is not Verdict.PASS:
            yield Dip(peak, last)
