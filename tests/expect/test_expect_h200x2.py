# SPDX-License-Identifier: MIT
"""Collectives of two H200: the bands repeat the fit, and hold every healthy reading."""

from __future__ import annotations

import pytest

from busbar import site as sites
from busbar.engine.collect import collect
from busbar.engine.verdicts import verdict_on
from busbar.expect import COLLECTIVES, Question, collective
from busbar.expect.bounds import factor
from busbar.expect.collective import bands as collective_bands
from busbar.parse.text import Source
from busbar.verdict import Verdict
from tests.cases import cases

from .fits import fit_time
from .recorded_runs import DATA

RANKS = 2
HEALTHY = (
    "nccl/healthy_{}.log.gz",
    "nccl/healthy_b_{}.log.gz",
    "prefix-a/{}_perf.log",
    "prefix-b/{}_perf.log",
)
MIB = 1 << 20


def readings(bench: str) -> list[tuple[int, float]]:
    """(bytes, busbw in GB/s) of both halves of each row from 16 MiB on."""
    files = [DATA / "h200x2" / name.format(bench) for name in HEALTHY]
    outputs = collect([Source.from_path(file) for file in files])
    found = [r for output in outputs for r in output.readings if r.kind == "busbw"]
    return [(r.nbytes, r.value) for r in found if r.nbytes >= 16 * MIB]


@cases("bench", COLLECTIVES)
def test_the_bands_repeat_the_fit(bench: str) -> None:
    site = sites.load("h200x4")
    bands = [
        band
        for band in collective_bands(site)
        if (band.collective, band.ranks_per_node, band.harness) == (bench, (2,), "nccl-tests")
    ]
    assert len(bands) == 2
    for band in bands:
        points = [
            (n * factor(bench, RANKS), n * factor(bench, RANKS) / value * 1e-3)
            for n, value in readings(bench)
            if band.covers(n)
        ]
        assert len(points) == band.readings
        latency_us, rate = fit_time(points)
        assert band.latency_us == pytest.approx(latency_us, rel=0.02)
        assert band.share * 450 == pytest.approx(rate, rel=0.01)


def of_pytorch(bench: str) -> list[tuple[int, float]]:
    lines = (DATA / "h200x2/torch_collectives.tsv").read_text().splitlines()[2:]
    rows = [line.split("\t") for line in lines]
    return [(int(nbytes), float(value)) for _, name, nbytes, value in rows if name == bench]


@cases("bench", COLLECTIVES)
def test_every_healthy_reading_passes_and_a_quarter_less_does_not(bench: str) -> None:
    site = sites.load("h200x4")
    found = {"nccl-tests": readings(bench), "pytorch": of_pytorch(bench)}
    assert [len(each) for each in found.values()] == [len(HEALTHY) * 2 * 4, 9]
    for harness, nbytes, value in ((name, *each) for name, rows in found.items() for each in rows):
        question = Question(bench=bench, nbytes=nbytes, ranks=RANKS, harness=harness)
        band = collective(site, question)
        assert verdict_on(band, value) is Verdict.PASS
        assert verdict_on(band, 0.75 * value) is Verdict.DEGRADED
