# SPDX-License-Identifier: MIT
"""Judges one launch of a benchmark: the assertions, then every reading against limit and band."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.judge.assertions import ASSERTIONS
from busbar.judge.launch import BenchLaunch, LaunchOutput
from busbar.judge.results import Result, judged, sentence
from busbar.output.reading import Reading
from busbar.verdict import Verdict

Expect = Callable[[BenchLaunch, Reading], Expectation]
_METRICS = {"bw": "bandwidth", "busbw": "busbw", "latency_us": "latency"}
_LARGE = 1 << 20
_DIP = 0.9
"""A bus bandwidth that falls below this share of its peak at a larger size is a dip: healthy runs
on 4 x H200 and 2 x p4d stay above 0.97, 2 x 8 H20 on a broken network fell to 0.70."""


def judge(check: str, launch: BenchLaunch, shown: LaunchOutput, expect: Expect) -> list[Result]:
    """What is wrong with the run, then its readings with their verdicts.

    A reading without a band is judged by the limit alone; a launch in which no reading has a band
    has failed, because nothing says that it was fast enough.
    """
    where = ",".join(dict.fromkeys(str(event.get("host")) for event in shown.ranks))
    pair = launch.pair
    results = [
        Result(check, verdict, where=where, pair=pair, message=message)
        for name, assertion in ASSERTIONS.items()
        for verdict, message in assertion(launch, shown)
    ]
    readings = [r for r in shown.readings if r.kind in _METRICS]
    why: list[str] = []
    rows = [_reading(check, launch, reading, expect, where, why) for reading in readings]
    if launch.bands and why and not any(row.typical for row in rows):
        failed = f"nothing to judge it by: {why[-1]}"
        results.append(Result(check, Verdict.FAILED, where=where, pair=pair, message=failed))
    results += [
        Result(check, Verdict.DEGRADED, where=where, pair=pair, message=message)
        for message in _dips(readings)
        if launch.bands
    ]
    return results + rows


def _reading(  # noqa: PLR0917 - all belong to the one row that it makes
    check: str, launch: BenchLaunch, reading: Reading, expect: Expect, where: str, why: list[str]
) -> Result:
    metric = _METRICS[reading.kind]
    place = {
        "where": where,
        "pair": _pair(launch, reading),
        "buffers": reading.buffers or launch.buffers,
        "bytes": reading.nbytes,
    }
    try:
        result = judged(check, metric, reading.value, expect(launch, reading), **place)
    except NoExpectation as missing:
        why.append(str(missing))
        limit = missing.limit
        value = {"us" if metric == "latency" else "gb_per_s": reading.value}
        result = Result(check, Verdict.PASS, metric=metric, limit=limit, **place, **value)  # type: ignore[arg-type]
        if limit and missing.unit == "GB/s" and metric != "latency" and reading.value > limit:
            result = replace(result, verdict=Verdict.IMPOSSIBLE)
    # Tools print rates of small messages as 0.00.
    if not reading.value > 0 and (metric == "latency" or reading.nbytes >= _LARGE):
        result = replace(result, verdict=Verdict.FAILED)
    if result.verdict is Verdict.PASS:
        return result
    return replace(result, message=sentence(result))


def _pair(launch: BenchLaunch, reading: Reading) -> str:
    if reading.source is not None and reading.source == reading.target:
        return f"{reading.operation} {reading.source}".strip()
    if reading.source is not None and reading.target is not None:
        return f"{reading.source}->{reading.target}"
    if reading.in_place is not None:
        return f"{launch.pair} {'in' if reading.in_place else 'out of'} place"
    return reading.operation or launch.pair


def _dips(readings: list[Reading]) -> Iterator[str]:
    """Series of bus bandwidths that fall past their peak."""
    series: dict[tuple[object, ...], list[Reading]] = defaultdict(list)
    for reading in readings:
        if reading.kind == "busbw" and reading.nbytes >= _LARGE:
            series[reading.in_place, reading.operation].append(reading)
    for rows in series.values():
        last = max(rows, key=lambda r: r.nbytes)
        peak = max(rows, key=lambda r: r.value)
        if last.value < _DIP * peak.value:
            yield (
                f"bus bandwidth falls from {peak.value:.4g} GB/s at {peak.nbytes} bytes"
                f" to {last.value:.4g} at {last.nbytes}"
            )
