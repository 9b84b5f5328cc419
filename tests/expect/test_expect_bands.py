# SPDX-License-Identifier: MIT
"""What holds for every band of every site."""

from __future__ import annotations

import pytest

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, point_to_point
from busbar.expect.collective import bands as collective_bands
from tests.cases import cases


@cases("name", sites.names())
def test_bands_are_narrow(name: str) -> None:
    site = sites.load(name)
    for link in sites.link_classes(site).values():
        for band in link.bands:
            # The host of a pair moves its latency as much as the links do.
            width = 1.4 if band.bench == "osu_latency" else 1.25
            assert band.high / band.low <= width
    assert all(band.high / band.low <= 1.5 for band in collective_bands(site))


@cases("name", sites.names())
def test_a_proven_band_names_its_hardware_and_readings(name: str) -> None:
    site = sites.load(name)
    bands = [band for link in sites.link_classes(site).values() for band in link.bands]
    for band in (*bands, *collective_bands(site)):
        assert bool(band.models) == (band.proof != "none")
        assert band.bytes[0] <= band.bytes[1]
        assert band.low <= 1 <= band.high
        assert len(band.fitted) <= max(band.readings, 0)


def test_fitted_numbers_are_counted() -> None:
    for name, bench, numbers in (
        ("mi250x", "osu_bw", (4, 14)),
        ("h200x4", "osu_bw", (2, 60)),
        ("h200x4", "osu_latency", (4, 68)),
    ):
        found = point_to_point(sites.load(name), Question(bench=bench, src=0, dst=1))
        assert (found.fitted, found.readings) == numbers


def test_an_engine_that_the_links_do_not_know() -> None:
    with pytest.raises(BusbarError, match=r"unknown engine 'sdma'.*these links have none"):
        point_to_point(sites.load("h200x4"), Question(bench="osu_bw", src=0, dst=1, engine="sdma"))


def test_a_band_of_other_hardware_is_not_proven() -> None:
    borrowed = point_to_point(sites.load("p5"), Question(bench="osu_bw", src=0, dst=1))
    own = point_to_point(sites.load("h200x4"), Question(bench="osu_bw", src=0, dst=1))
    assert (borrowed.typical, borrowed.proof) == (own.typical, "none")
    assert own.proof == "run"


@cases(("dst", "limit"), [(1, 25), (3, 50), (5, 15.75)])
def test_nvlinks_without_a_switch_are_not_forwarded(dst: int, limit: float) -> None:
    """One link, two links, and none: then PCIe, and not the wider way over other GPUs."""
    with pytest.raises(NoExpectation) as caught:
        point_to_point(sites.load("p3dn"), Question(bench="osu_bw", src=0, dst=dst))
    assert caught.value.limit == limit


def test_partitions_of_one_accelerator_and_of_two() -> None:
    site = sites.load("mi300x")
    far = point_to_point(site, Question(bench="osu_bw", src=0, dst=63, partition="cpx"))
    assert far.limit == 64
    assert far.path[1] == "package0-package7: 1 x xgmi-mi300x = 64 GB/s (binds)"
