# SPDX-License-Identifier: MIT
"""Limits and bands of OSU benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from busbar.engine.bands import between_two, no_bands, not_staged, pair, question_of, site_of
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.expect import NoExpectation
from busbar.expect.bounds import factor
from busbar.expect.expectation import Expectation
from busbar.expect.point import multi_pair
from busbar.parse.tables import beside

OSU_COLLECTIVES: Mapping[str, str] = beside(__file__)
_PARTS = ("osu_allgather", "osu_alltoall")
"""OSU prints the size of one rank's part for these, and the whole for the others."""


def bands(run: Run, reading: Reading) -> list[Expectation]:
    """Return the band of a reading, by its test."""
    if run.bench in ("osu_bw", "osu_bibw", "osu_latency"):
        return [pair(run, reading)]
    if run.bench == "osu_mbw_mr":
        return [_multi_pair(run, reading)]
    if run.bench == "osu_xccl_bw":
        return [between_two(run, reading)]
    if run.bench.replace("osu_xccl_", "osu_") in OSU_COLLECTIVES:
        return [_collective(run, reading)]
    return no_bands(run, reading)


def _multi_pair(run: Run, reading: Reading) -> Expectation:
    band = multi_pair(site_of(run), question_of(run, reading))
    # OSU prints the same title for buffers of the host, which are slower.
    if not run.memory and reading.value < band.low:
        where = f"site {site_of(run).name}"
        raise NoExpectation("the output does not show where the buffers are", where=where)
    return band


def _collective(run: Run, reading: Reading) -> Expectation:
    if run.memory == "host":
        raise NoExpectation("host buffers use no link of the GPUs")
    if reading.kind != "latency_us":
        return not_staged(run, reading, reading.operation)
    why = "the latency of a collective has no band; use its bus bandwidth"
    raise NoExpectation(why, limit=_least_us(run, reading), unit="us")


def _least_us(run: Run, latency: Reading) -> float | None:
    """Return the time that the links take for what a collective moves; None if not known."""
    rate = _bus_bandwidth(run, latency)
    try:
        limit: float | None = not_staged(run, rate, rate.operation).limit
    except NoExpectation as missing:
        limit = missing.limit
    return rate.value / limit * latency.value if run.ranks and limit else None


def _bus_bandwidth(run: Run, latency: Reading) -> Reading:
    """Return the bus bandwidth that a latency is; OSU prints the time alone.

    The size over the time, times the factor of nccl-tests, compares.
    """
    bench, ranks = run.bench.replace("osu_xccl_", "osu_"), run.ranks or 1
    operation = OSU_COLLECTIVES[bench]
    rate = latency.gb_per_s * (ranks if bench in _PARTS else 1) * factor(operation, ranks)
    return replace(latency, kind="busbw", value=rate, operation=operation)


def derived(run: Run, readings: Sequence[Reading]) -> list[Reading]:
    """Return the bus bandwidth that a collective of OSU reaches at its largest size."""
    known = run.bench.replace("osu_xccl_", "osu_") in OSU_COLLECTIVES and run.ranks
    latencies = [each for each in readings if each.kind == "latency_us" and each.value > 0]
    if not known or not latencies:
        return []
    return [_bus_bandwidth(run, max(latencies, key=lambda each: each.nbytes))]
