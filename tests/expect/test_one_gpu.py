# SPDX-License-Identifier: MIT
"""A machine with one GPU: which checks it can run, and how its plain copies are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busbar import site as sites
from busbar.delivery.hardware import gpu_features
from busbar.engine.collect import show
from busbar.engine.expectation import expectation_of
from busbar.engine.run import Run
from busbar.engine.verdicts import judge_reading, verdict_on
from busbar.expect.floors import memory_copy
from busbar.explain import explain
from busbar.parse.text import Source
from busbar.verdict import Verdict
from tests.cases import cases


@pytest.fixture(scope="module")
def copies(data):
    """The readings of the check ``memory`` on a machine with one H200."""
    text = (data / "h200x1/memory.log").read_text()
    found = show("memory", text.splitlines()).readings
    return {reading.buffers: reading for reading in found if reading.buffers != "H"}


@pytest.fixture(scope="module")
def expect():
    """The expectations of that GPU, on a site of four of them."""
    return expectation_of(Run(site=sites.load("h200x4"), bench="memory"))


def test_the_copies_of_a_healthy_gpu_pass(copies, expect):
    assert set(copies) == {"H D", "D H", "D"}
    for reading in copies.values():
        judged = judge_reading(reading, expect)
        assert judged.verdict is Verdict.PASS
        assert judged.expectation.proof == "run"


@cases("buffers", ["H D", "D H", "D"])
@cases(
    ("share", "verdict"),
    [(0.8, Verdict.DEGRADED), (0.5, Verdict.DEGRADED), (2, Verdict.IMPOSSIBLE)],
)
def test_a_slow_or_impossible_copy_does_not(copies, expect, buffers, share, verdict):
    reading = replace(copies[buffers], value=copies[buffers].value * share)
    assert judge_reading(reading, expect).verdict is verdict


def test_a_link_without_readings_has_a_floor(copies):
    expect = expectation_of(Run(site=sites.load("p4d"), bench="memory"))
    # PCI Express 4.0 carries 31.5 GB/s; at half its width a copy reaches less than 14.
    for value, verdict in ((25.0, Verdict.UNJUDGED), (13.5, Verdict.DEGRADED)):
        assert judge_reading(replace(copies["H D"], value=value), expect).verdict is verdict


def test_a_gpu_without_readings_has_a_floor():
    band = memory_copy("NVIDIA A100-SXM4-40GB", 1555.0, 1 << 28)
    assert band.floor
    assert band.limit == pytest.approx(777.5)
    assert "A100" in band.sources[0]


def test_a_gpu_that_does_not_state_its_memory_is_not_judged(copies, expect):
    judged = judge_reading(replace(copies["D"], memory_gb_per_s=None), expect)
    assert judged.verdict is Verdict.UNJUDGED


@cases(("count", "pair"), [(1, False), (2, True), (8, True)])
def test_only_a_second_gpu_makes_a_pair(count, pair):
    node = sites.load("h200x4").node_type()
    gpus = node.gpus.model_copy(update={"count": count})
    assert ("pair" in gpu_features(node.model_copy(update={"gpus": gpus}))) is pair
    # A node without GPUs has pairs of cores.
    assert gpu_features(sites.load("local").node_type()) == ["pair"]


def test_output_of_an_older_version_is_explained(data):
    name = "h200x4-prefix/memory_1.0.log"  # without copies to and from the host
    (found,) = explain([Source.from_path(data / name)], site=sites.load("h200x4"))
    assert not found.verdict.is_problem
    assert not found.causes


def test_the_recorded_h100_passes_and_a_quarter_less_does_not(data):
    rows = [line.split("\t") for line in (data / "h100x1/copies.tsv").read_text().splitlines()[2:]]
    found = [float(value) for _, copy, value in rows if copy == "D"]
    assert len(found) == 2
    for value in found:
        band = memory_copy("NVIDIA H100 80GB HBM3", 3352.0, 1 << 28)
        assert verdict_on(band, value) is Verdict.PASS
        assert verdict_on(band, 0.75 * value) is Verdict.DEGRADED
