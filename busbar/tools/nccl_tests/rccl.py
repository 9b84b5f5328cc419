# SPDX-License-Identifier: MIT
"""Whether a mode of RCCL is in use by its own log, and what it gains over a run without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from busbar.engine.assertions import Problem
from busbar.engine.job_output import JobOutput
from busbar.engine.launch import LaunchOutput
from busbar.engine.reading import Reading
from busbar.engine.verdicts import Expect
from busbar.expect import NoExpectation
from busbar.parse import numbers
from busbar.units import format_bytes
from busbar.verdict import Verdict


def not_in_use(facts: JobOutput, mode: Mapping[str, str], ranks: int) -> Iterator[Problem]:
    """What the log should say of the mode and does not.

    RCCL repeats every variable that is set, whether it obeys it or not; so what it then did counts
    too. Its word that it did otherwise makes a run degraded; without its word the run has failed.
    """
    for name, value in mode.items():
        if name.startswith(("RCCL_", "NCCL_")) and value not in facts.environment.get(name, {}):
            yield Verdict.FAILED, f"the log does not show {name}={value}"
    if mode.get("RCCL_MSCCLPP_ENABLE") == "1":
        yield from _mscclpp(facts, mode.get("RCCL_MSCCLPP_THRESHOLD"))
    if minimum := mode.get("NCCL_MIN_NCHANNELS"):
        channels = sorted(
            {numbers.count(count) for count in facts.values("nccl.channels", "channels")}
        )
        if not channels:
            yield Verdict.FAILED, "the log does not report the number of channels"
        elif channels[0] < numbers.count(minimum):
            yield Verdict.DEGRADED, f"requested {minimum} channels, but there are {channels[0]}"
    joined = set(facts.values("nccl.init", "ranks"))
    if joined != {str(ranks)}:
        found = " or ".join(sorted(joined)) or "no"
        yield Verdict.FAILED, f"RCCL joined {found} ranks, not {ranks}"


def _mscclpp(facts: JobOutput, threshold: str | None) -> Iterator[Problem]:
    refused = facts.first("rccl.mscclpp-off")
    limits = set(facts.values("rccl.mscclpp-on", "threshold"))
    if refused:
        yield Verdict.DEGRADED, f"MSCCL++ is off: {refused['text']}"
    elif not limits:
        yield Verdict.FAILED, "the log does not say that MSCCL++ is enabled"
    elif threshold and limits != {threshold}:
        served = ", ".join(sorted(limits))
        yield Verdict.DEGRADED, f"MSCCL++ serves up to {served} bytes, not {threshold}"


def too_small_gain(
    on: LaunchOutput,
    off: LaunchOutput,
    expect: tuple[Expect, Expect],
    *,
    least: float,
) -> Iterator[Problem]:
    """Where the largest message gains less by the mode than it should.

    ``expect`` are the expectations with the mode and without. If the site has a band for both,
    their distance is the gain that was published; otherwise ``least`` holds.
    """
    status = off.facts.exit_status
    if status is None or status.code or not off.readings:
        yield Verdict.FAILED, "the run without the mode did not end well: its gain is unknown"
        return
    with_it, without = (
        {
            (r.nbytes, r.in_place): r
            for r in sorted(shown.readings, key=lambda r: r.nbytes)
            if r.kind == "busbw" and r.value > 0
        }
        for shown in (on, off)
    )
    both = [key for key in with_it if key in without]
    if not both:
        yield Verdict.FAILED, "no size was measured with the mode and without: its gain is unknown"
        return
    for key in (key for key in both if key[0] == both[-1][0]):
        fast, slow = with_it[key], without[key]
        wanted = max(_published_gain(expect[0], fast, expect[1], slow), least)
        if fast.value < wanted * slow.value:
            place = "in place" if key[1] else "out of place"
            yield (
                Verdict.DEGRADED,
                f"{format_bytes(key[0])} {place}: {fast.value:.4g} GB/s with the mode and"
                f" {slow.value:.4g} without, a gain of {fast.value / slow.value:.2f} where"
                f" {wanted:.2f} is the least",
            )


def _published_gain(with_it: Expect, fast: Reading, without: Expect, slow: Reading) -> float:
    """The least gain by the bands of both runs; 0 if one of them has none."""
    try:
        bands = with_it(fast), without(slow)
    except NoExpectation:
        return 0.0
    return 0.0 if any(band.floor for band in bands) else bands[0].low / bands[1].high
