# SPDX-License-Identifier: MIT
"""Readings that no machine has, or that are better than their band."""

from __future__ import annotations

from pathlib import Path

import pytest

from busbar import site as sites
from busbar.engine.expectation import expectation_of
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import judge_reading
from busbar.explain import Source, explain
from busbar.verdict import Verdict

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("buffers", ["D D", "H D", "H H", ""])
def test_no_message_is_faster_than_physics(buffers: str) -> None:
    """With and without a site, that is with and without a band."""
    for site in (sites.load("h200x4"), None):
        expect = expectation_of(Run(site=site, bench="osu_latency", ranks=2, nodes=1))
        for us in (1e-5, 0.008):
            judged = judge_reading(Reading("latency_us", 8, us, buffers=buffers), expect)
            assert judged.verdict is Verdict.IMPOSSIBLE, (site, us)


@pytest.mark.parametrize(
    ("known", "us", "verdict"),
    [
        (Run(memory="device"), 0.083, Verdict.IMPOSSIBLE),
        (Run(nodes=2), 0.083, Verdict.IMPOSSIBLE),
        (Run(memory="host", nodes=1), 0.083, Verdict.UNJUDGED),
        (Run(memory="device", ranks=1), 0.083, Verdict.UNJUDGED),
        (Run(memory="device"), 1.5, Verdict.UNJUDGED),
    ],
)
def test_what_is_known_of_the_run_bounds_a_latency(
    known: Run, us: float, verdict: Verdict
) -> None:
    reading = Reading("latency_us", 8, us)
    assert judge_reading(reading, expectation_of(known)).verdict is verdict


def test_a_number_that_a_blank_parts_is_refused() -> None:
    text = (DATA / "h200x4/osu_latency_healthy.log").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("65536 ")]
    (found,) = explain([Source.from_text("x", text.replace(row, "65536   1 048.08"))])
    assert found.verdict is Verdict.FAILED
    assert "no decimals" in found.causes[0].summary


def test_a_table_of_other_units_is_refused() -> None:
    text = (DATA / "h200x4/nccl_healthy_a.log").read_text()
    for unit, other in (("(us)", "(ms)"), ("(GB/s)", "(Gb/s)"), ("(GB/s)", "(MB/s)")):
        (found,) = explain([Source.from_text("x", text.replace(unit, other))])
        assert found.verdict is Verdict.FAILED
        assert other in found.causes[0].summary


def test_a_reading_above_its_band_passes_with_a_note() -> None:
    text = (DATA / "h200x4/osu_bw_healthy_a.log").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("4194304 ")]
    text = text.replace(row, "4194304                 431000.00")
    (found,) = explain([Source.from_text("x", text)], site=sites.load("h200x4"))
    assert found.verdict is Verdict.PASS
    (note,) = [note for note in found.notes if note.id == "above-band"]
    assert note.summary == "1 of 7 readings: 431 at 4 MiB, band 270.5 .. 317.5 GB/s"
    (found,) = explain([Source.from_text("x", text.replace("431000", "451000"))])
    assert found.verdict is not Verdict.PASS
