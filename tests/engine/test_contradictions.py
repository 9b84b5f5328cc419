# SPDX-License-Identifier: MIT
"""A rate that is not the size over the time, or another clock, in outputs of our own programs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from yaml import safe_load

from busbar.engine.contradictions import of_event, product_of, rate_of
from busbar.engine.job_output import JobOutput
from busbar.engine.own_programs import contradictions
from busbar.engine.reading import Evidence
from busbar.parse.events import End, Idle, ReadingEvent, Start
from tests.cases import cases

ROOT = Path(__file__).parents[2]
LINE = Evidence("log", 1, "a line")


@cases(
    ("nbytes", "time_us", "rate", "decimals", "right"),
    [
        (1_000_000, 10.0, 100.0, (2, 2), True),
        (1_000_000, 10.0, 100.17, (2, 2), False),
        (1_000_000, 10.0, 100.15, (2, 2), True),  # time by its rounding, and one in a thousand
        (1_000_000, 10.0, 99.7, (2, 2), False),
        (0, 0.0, 0.0, (2, 2), True),
        (8, 0.0, 0.0, (2, 2), False),
        (8, -1.0, -0.008, (2, 3), False),
        (0, math.nan, 0.0, (2, 2), True),
        (1024, 0.005, 5000.0, (2, 2), True),  # less than the last digit: any rate above
    ],
)
def test_a_rate_is_the_size_over_the_time(
    nbytes: int, time_us: float, rate: float, decimals: tuple[int, int], right: bool
) -> None:
    assert rate_of(nbytes, time_us, rate, decimals) is right


@cases(
    ("rate", "factor", "product", "right"),
    [(100.0, 1.75, 175.0, True), (100.0, 1.75, 175.18, True), (100.0, 1.75, 175.2, False)],
)
def test_a_product_is_its_factors(rate: float, factor: float, product: float, right: bool) -> None:
    assert product_of(rate, factor, product, (2, 2)) is right


def said(**altered: float | str) -> str:
    right = {"gb_per_s": 175.0, "algbw_gb_per_s": 100.0, "us": 10.0, "operation": "all_reduce"}
    values: dict[str, Any] = {**right, "ranks": 8, **altered}
    ranks = values.pop("ranks")
    start = Start("torch_collectives", "1.0", "cuda", ranks, ranks) if ranks else None
    return of_event(ReadingEvent("busbw", 1_000_000, 0, **values), start)


def test_each_contradiction_of_a_collective_is_said() -> None:
    assert said() == ""
    assert said(us=10.1) == "algbw 100 is not the size over 10.1 us"
    assert said(gb_per_s=174.0) == "busbw 174 is not 1.75 times algbw 100"
    assert said(ranks=4) == "busbw 175 is not 1.5 times algbw 100"
    assert said(ranks=1) == said(ranks=0) == ""


@cases(
    ("timed", "text"),
    [
        ({"windows": 3, "window": 64, "seconds": 0.01}, ""),
        ({"windows": 1, "window": 64, "seconds": 0.01}, "has windows 1, not 3 or more"),
        ({"window": 64, "seconds": 0.01}, "lacks windows"),
        ({"windows": 1, "window": 1, "seconds": 0.7}, ""),  # a path that crawls
        ({"windows": 1, "window": 1, "seconds": 1e-4}, "has windows 1, not 3 or more"),
        ({"us": 2.0, "trips": 6}, ""),
        ({"us": 2.0, "trips": 5}, "has trips 5, not 6 or more"),
        ({"us": 2.0}, "lacks trips"),
        ({"us": 2.0, "trips": 6, "verified": 7}, "has verified 7, not 104 or more"),
    ],
)
def test_few_repetitions_are_no_reading(timed: dict[str, Any], text: str) -> None:
    seconds = timed.get("seconds", 1.0)
    if "us" not in timed:
        timed = {**timed, "gb_per_s": timed.get("window", 1) * 1_048_576 / seconds * 1e-9}
    metric: Any = "latency" if "us" in timed else "bandwidth"
    reading = ReadingEvent(metric, 1_048_576, 0, **{"verified": 104, **timed})
    assert of_event(reading, Start("gpu_aware", "1.2", "host", 2, 2)) == (
        text and f"the {metric} at 1 MiB {text}"
    )
    assert of_event(reading, Start("gpu_aware", "1.0", "host", 2, 2)) == ""


@cases(
    ("version", "ratios", "text"),
    [
        ("9.0", (1.0, None), ""),
        ("9.0", (None, 1.3), "the clock of the readings ran at 1.3 times the kernel's"),
        ("9.0", (0.7, 1.0), "the clock of the readings ran at 0.7 times the kernel's"),
        ("9.0", (None, None), "nothing compared the clock of the readings"),
        ("1.0", (None, None), ""),  # it had no second clock yet
    ],
)
def test_a_clock_is_compared_with_the_kernel(
    version: str, ratios: tuple[float | None, float | None], text: str
) -> None:
    own, at_end = ratios
    start, idle = Start("gpu_aware", version, "host", 2, 2), Idle(0, 1.0, 0.1, own)
    output = JobOutput(events=[(event, LINE) for event in (start, idle, End(0, 1.0, at_end))])
    output.finished = LINE
    assert [each.text for each in contradictions(output, None, 2)] == ([text] if text else [])


def test_the_last_known_versions_are_those_of_the_sources() -> None:
    known = safe_load((ROOT / "busbar" / "engine" / "own_programs.yaml").read_text())
    for program, versions in known.items():
        (source,) = (ROOT / "reframe_checks" / "src").glob(f"{program}.*")
        found = re.search(r'(?i:version)"?(?: =|,) "([\d.]+)"', source.read_text())
        assert found
        assert found[1] == versions[-1]
