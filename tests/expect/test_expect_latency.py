# SPDX-License-Identifier: MIT
"""The latency between GPUs, which the CPU and the driver make as much as the links do."""

from __future__ import annotations

from pathlib import Path

from busbar import site as sites
from busbar.engine.verdicts import verdict_on
from busbar.expect import Question, point_to_point
from busbar.expect.expectation import Expectation
from busbar.parse import events
from busbar.verdict import Verdict

# Latencies with the driver's time of the same launch, on idle and on loaded CPUs.
RECORD = "h200x2/gpu_aware_driver_us.log"


def latency(**more: float) -> Expectation:
    return point_to_point(
        sites.load("h200x4"),
        Question(bench="osu_latency", src=0, dst=1, nbytes=8, lane="ucx-1.14", **more),
    )


def test_a_latency_is_judged_by_how_fast_the_driver_was(data: Path) -> None:
    lines = (data / RECORD).read_text().splitlines()[1:]
    # The first word says what the CPUs did beside it.
    readings = [events.parse(line.partition(" ")[2]) for line in lines]
    assert len(readings) == 68
    # Without the driver's time more than a quarter of these healthy readings would be degraded.
    assert sum(reading.value > latency().high for reading in readings) == 19
    for reading in readings:
        expected = latency(driver_us=reading.driver_us)
        assert verdict_on(expected, reading.value) is Verdict.PASS
        # Staged through the host it takes 1.8 times as long, whatever the CPUs do.
        assert verdict_on(expected, reading.value * 14.4 / 7.8) is Verdict.DEGRADED


def test_a_fast_driver_narrows_nothing() -> None:
    assert latency(driver_us=5.0) == latency()
    assert "took 9.5 us in this run" in latency(driver_us=9.5).sources[-1]


def test_a_driver_that_is_far_too_slow_excuses_nothing() -> None:
    assert verdict_on(latency(driver_us=30.0), 25.0) is Verdict.DEGRADED


def test_bandwidth_does_not_depend_on_the_driver() -> None:
    with_it, without = (
        point_to_point(
            sites.load("h200x4"), Question(bench="osu_bw", src=0, dst=1, driver_us=driver)
        )
        for driver in (20.0, None)
    )
    assert with_it == without
