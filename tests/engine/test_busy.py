# SPDX-License-Identifier: MIT
"""Readings below their band are unknown if the record of other programs accounts for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.engine.busy import accounts_for, excused, loads
from busbar.engine.collect import collect
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import Judged, judge_reading
from busbar.expect.expectation import Expectation
from busbar.explain import Source
from busbar.verdict import Verdict
from tests.cases import cases

DATA = Path(__file__).resolve().parents[1] / "data"
BAND = Expectation(limit=100, low=50, typical=60, high=70)
HOST = Run(ranks=2, nodes=1, memory="host")
GPU = Run(ranks=2, nodes=1, memory="device", buffers="D D")
# Recorded on a virtual machine with two CPUs: a job of two ranks beside compilers and tests.
COMPILERS = {
    "event": "busy",
    "host": "vm",
    "seconds": 27.62,
    "cpus": 2,
    "own": 0.4222,
    "others": 1.552,
    "node_cpus": 2,
    "node_others": 1.552,
    "steal": 0.002172,
    "switches": 4134,
    "wait": 0.7892,
    "waiting": 1.577,
    "pressure": 0.9207,
    "disk": 0.03524,
    "runnable": 5.2,
    "processes": [{"pid": 12191, "user": "root", "command": "cc1plus", "cpus": 0.3788}],
}
# What the record of such a job shows when little else runs.
QUIET = COMPILERS | {
    "own": 1.893,
    "others": 0.021,
    "node_others": 0.021,
    "wait": 0.004,
    "waiting": 0.008,
    "processes": [],
}
# Others stream memory on 4 of 16 CPUs; nobody waits.
NEIGHBOUR = QUIET | {"cpus": 16, "node_cpus": 16, "others": 4.0, "node_others": 4.0}


def output(*records: dict[str, object], more: str = "") -> JobOutput:
    text = more + "".join(json.dumps(record) + "\n" for record in records)
    (facts,) = collect([Source.from_text("job.out", text or "\n")])
    return facts


def judged(value: float, band: Expectation = BAND, nbytes: int = 1 << 30) -> Judged:
    kind = "latency_us" if band.unit == "us" else "bw"
    return judge_reading(Reading(kind, nbytes, value), lambda _: band)


def verdict(
    value: float, record: dict[str, object], run: Run = HOST, nbytes: int = 1 << 30
) -> Verdict:
    (each,) = excused([judged(value, nbytes=nbytes)], loads(output(record), run))
    return each.verdict


def causes(record: dict[str, object], run: Run = GPU, more: str = "") -> list[str]:
    return [load.cause for load in loads(output(record, more=more), run)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(60, "pass"), (49, "unknown"), (5, "unknown"), (101, "impossible"), (0, "failed")],
)
def test_a_busy_node_excuses_slow_readings_only(value: float, expected: str) -> None:
    assert verdict(value, COMPILERS) == expected


@pytest.mark.parametrize("value", [49, 5])
def test_a_quiet_node_excuses_nothing(value: float) -> None:
    assert verdict(value, QUIET) is Verdict.DEGRADED
    assert not loads(output(QUIET), HOST)


def test_a_slow_reading_without_a_record_is_degraded() -> None:
    (each,) = excused([judged(49)], loads(output(), HOST))
    assert each.verdict is Verdict.DEGRADED


@pytest.mark.parametrize(
    "change",
    [
        {"others": 0.01, "waiting": 0.5, "wait": 0.3},  # a daemon, and ranks that wait otherwise
        {"others": 0.3, "own": 1.7, "waiting": 2.3, "wait": 0.55},  # four ranks on two CPUs
        {"own": 2.0, "others": 0.0, "waiting": 2.0, "wait": 0.5},
        {"wait": None, "waiting": None, "own": 0.4, "others": 0.5},  # CPUs to spare
    ],
)
def test_waiting_that_others_do_not_cause_is_no_excuse(change: dict[str, object]) -> None:
    assert verdict(20, COMPILERS | change | {"node_others": 0.0}) is Verdict.DEGRADED


@pytest.mark.parametrize(("value", "expected"), [(45, "unknown"), (20, "degraded")])
def test_a_light_load_excuses_a_little(value: float, expected: str) -> None:
    record = QUIET | {"others": 0.2, "waiting": 0.25, "wait": 0.2, "node_cpus": 64, "cpus": 64}
    assert verdict(value, record) == expected


def test_without_counts_of_the_kernel_full_cpus_are_the_evidence() -> None:
    record = COMPILERS | {"wait": None, "waiting": None}
    assert verdict(20, record) is Verdict.UNKNOWN


def test_what_the_hypervisor_takes_counts() -> None:
    assert verdict(40, QUIET | {"steal": 0.6}) is Verdict.UNKNOWN
    assert verdict(40, QUIET | {"steal": 0.02}) is Verdict.DEGRADED


@pytest.mark.parametrize(("value", "expected"), [(20, "unknown"), (8, "degraded")])
def test_streaming_neighbours_take_memory_bandwidth(value: float, expected: str) -> None:
    assert verdict(value, NEIGHBOUR) == expected
    assert verdict(value, NEIGHBOUR, GPU) is Verdict.DEGRADED
    assert verdict(value, NEIGHBOUR, replace(GPU, buffers="H D")) == expected


def test_latencies_are_excused_as_rates_are() -> None:
    band = Expectation(limit=0.1, low=0.1, typical=0.2, high=0.5, unit="us")
    (each,) = excused([judged(1.1, band)], loads(output(COMPILERS), HOST))
    assert each.verdict is Verdict.UNKNOWN
    (each,) = excused([judged(1.1, band)], loads(output(QUIET), HOST))
    assert each.verdict is Verdict.DEGRADED


def test_a_limit_that_was_measured_under_load_proves_nothing() -> None:
    measured = replace(HOST, copies=())
    assert verdict(101, COMPILERS, measured) is Verdict.UNKNOWN
    assert verdict(101, QUIET, measured) is Verdict.IMPOSSIBLE
    assert verdict(101, COMPILERS, HOST) is Verdict.IMPOSSIBLE


def verdict_of_waiting(
    value: float, waited: float | None, record: dict[str, object] | None, more: str = ""
) -> Verdict:
    """Judge a reading of host memory whose ranks waited for CPUs for a part of its time."""
    reading = Reading("bw", 1 << 20, value, cpu_wait_share=waited)
    facts = output(*([record] if record else []), more=more)
    facts.readings.append(reading)
    (each,) = excused([judge_reading(reading, lambda _: BAND)], loads(facts, HOST))
    return each.verdict


# The mean of a run of which others used the CPUs for a tenth of the time.
BURST = QUIET | {"own": 1.8, "others": 0.2, "waiting": 0.2, "wait": 0.1, "node_others": 0.2}


@cases(
    ("value", "waited", "record", "expected"),
    [
        # In a worse part of the run than the mean says.
        (0.005, 0.97, BURST, "unknown"),
        (0.005, None, BURST, "degraded"),
        (26, 0.5, BURST, "unknown"),
        (20, 0.5, BURST, "degraded"),
        (49, 0.15, BURST | {"others": 0.05, "waiting": 0.05, "node_others": 0.05}, "unknown"),
        # In a better part: others do not account for it.
        (20, 0.0, COMPILERS, "degraded"),
        (20, None, COMPILERS, "unknown"),
        (49, 0.05, COMPILERS, "degraded"),
        (60, 0.97, COMPILERS, "pass"),
        # Not for others: ranks, or a rank and its threads, share a CPU.
        (20, 1.0, QUIET | {"cpus": 1, "own": 1.0, "others": 0.02, "waiting": 1.0}, "degraded"),
        (20, 1.0, QUIET | {"own": 2.0, "others": 0.02, "waiting": 2.0}, "degraded"),
        (2, 1.0, COMPILERS | {"cpus": 1, "own": 0.13, "others": 0.8, "waiting": 1.8}, "degraded"),
        # Others stream memory on CPUs that the ranks do not use.
        (20, 0.0, NEIGHBOUR, "unknown"),
        (8, 0.0, NEIGHBOUR, "degraded"),
        # The hypervisor takes CPUs from ranks that run.
        (35, 0.0, QUIET | {"steal": 0.6}, "unknown"),
    ],
)
def test_a_reading_is_judged_by_its_own_waiting(
    value: float, waited: float | None, record: dict[str, object], expected: str
) -> None:
    assert verdict_of_waiting(value, waited, record) == expected


PLACE = '{{"event": "rank", "rank": {}, "host": "vm", "pid": 1, "node_rank": {}, "cpus": "{}"}}\n'


@pytest.mark.parametrize(
    ("cpus", "waited", "expected"),
    [
        (("0", "1"), 0.97, "unknown"),
        (("0-1", "0-1"), 0.97, "unknown"),
        (("0", "1"), 0.0, "degraded"),
        (("0", "0"), 0.97, "degraded"),
        (("0-1", "0", "1"), 0.97, "degraded"),
        (("", ""), 0.97, "degraded"),
        ((), 0.97, "degraded"),
    ],
)
def test_waiting_without_a_record(cpus: tuple[str, ...], waited: float, expected: str) -> None:
    places = "".join(PLACE.format(rank, rank, each) for rank, each in enumerate(cpus))
    assert verdict_of_waiting(1, waited, None, places) == expected


@pytest.mark.parametrize(
    ("throttled", "value", "expected"),
    [(1.0, 30, "unknown"), (1.0, 10, "degraded"), (0.05, 30, "degraded")],
)
def test_a_quota_of_cpu_time(throttled: float, value: float, expected: str) -> None:
    record = QUIET | {"own": 1.0, "quota": 1.0, "throttled": throttled}
    assert verdict(value, record) == expected
    found = loads(output(record), HOST)
    assert [load.cause for load in found] == (["cpu-quota"] if throttled > 0.1 else [])


def test_the_pressure_of_the_job_counts_without_counts_of_its_ranks() -> None:
    record = QUIET | {"wait": None, "waiting": None, "own": 1.0, "others": 0.5}
    assert verdict(30, record | {"job_pressure": 0.45}) is Verdict.UNKNOWN
    assert verdict(30, record | {"job_pressure": 0.01}) is Verdict.DEGRADED


def test_the_busiest_node_decides() -> None:
    found = loads(output(QUIET, COMPILERS | {"host": "n2"}), replace(HOST, nodes=2))
    assert [load.cause for load in found] == ["cpu-busy"]
    assert accounts_for(found, 0.5)
