# SPDX-License-Identifier: MIT
"""The model against published readings: those that it was fitted to, and others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.expect import NoExpectation, Question, expect
from busbar.site.model import Partition
from tests.cases import cases
from tests.expect.published import Comparison, compare, readings
from tests.expect.test_model import site

GB200 = {"model": "NVIDIA GB200", "arch": "sm_100", "count": 4}
NOT_MODELLED = ("Intel",)
"""Vendors that no site can describe."""
FITTED = {
    *("ndh100v5", "p6-b200-a", "gb200-nvl72", "gb200-tray-ml", "ndv4", "ml-h100", "liplus-a100"),
    *("eessi-a100", "gh178-a100-pair", "alps-gh200", "p5", "amd-docs-mi200", "amd-mi300x-cpx"),
    *("amd-mi350x", "lumi-mi250x", "cscs-mi200", "cvs-mi300x"),
}
"""Systems of which a band names a reading as its source."""
FITTED_READINGS = {("ml-a100", "copy"), ("p6-b300-b", "alltoall", 64 << 20)}
"""Readings of other systems that a band names: system, benchmark, and size."""
OUTSIDE = {
    *("gh194-h100-pair", "oci-a100-40", "liplus-a100", "oci-gb300-4"),
    *("gh1221-h100", "p6-b300-a", "rtx6k-turin8", "amd-mi350x"),
}
"""The first two are low; NCCL's tuning dips at one size of the next two; the others are what the
model misses: NCCL without NVLS, a second generation of adapters, GPUs on PCI Express, and a ring
of RCCL at a size that its own tuning leaves to the tree (156 of 190 GB/s)."""


@cache
def comparisons() -> tuple[Comparison, ...]:
    return tuple(compare(row) for row in readings() if not row.gpu.startswith(NOT_MODELLED))


def few_nodes() -> list[Comparison]:
    """Measured on one node, one NVLink domain or two to four nodes."""
    return [
        each
        for each in comparisons()
        if each.reading.kind == "measured"
        and (each.reading.nodes <= 4 or "one NVLink domain" in each.reading.fabric)
    ]


def held_out() -> list[Comparison]:
    """Those that nothing was fitted to."""
    return [
        each
        for each in few_nodes()
        for row in [each.reading]
        if row.system not in FITTED
        and not {(row.system, row.bench), (row.system, row.bench, row.nbytes)} & FITTED_READINGS
    ]


def shares(chosen: list[Comparison]) -> tuple[float, float]:
    """The share with a band, and of those the share inside it."""
    banded = [each for each in chosen if each.expected]
    return len(banded) / len(chosen), sum(e.place == "inside" for e in banded) / len(banded)


def test_most_measured_readings_have_a_band_and_are_inside() -> None:
    covered, inside = shares(few_nodes())
    assert len(few_nodes()) > 100
    assert covered >= 0.9
    assert inside >= 0.92


def test_readings_that_nothing_was_fitted_to_are_inside() -> None:
    covered, inside = shares(held_out())
    assert len(held_out()) >= 25
    assert covered >= 0.85
    assert inside >= 0.85


def test_readings_that_came_after_the_fit_are_inside() -> None:
    """All but one of 83 were inside when they were first compared."""
    places = [compare(row).place for row in readings("held-out")]
    assert len(places) == 83
    assert places.count("inside") >= 0.95 * len(places)
    assert "impossible" not in places


def test_no_measured_reading_is_above_the_limit() -> None:
    assert not [each for each in comparisons() if each.place == "impossible"]


def test_bands_of_measured_classes_are_narrow() -> None:
    for each in comparisons():
        band = each.expected
        if band and not band.outside and band.unit == "GB/s":
            large = each.reading.nbytes >= 128 << 20
            assert band.low >= (0.68 if large else 0.4) * band.typical, each.reading
            assert band.high <= (1.47 if large else 2.5) * band.typical, each.reading


def test_every_broken_run_is_below_its_band() -> None:
    broken = [each for each in comparisons() if each.reading.kind == "broken"]
    assert len(broken) == 18
    assert [each.reading.value for each in broken if each.expected and each.place != "below"] == []


def test_thresholds_of_health_checks_are_no_higher_than_the_band() -> None:
    for each in comparisons():
        if each.reading.kind == "threshold" and each.expected and not each.expected.outside:
            assert each.place in ("below", "inside"), each.reading


def test_readings_outside_their_band_are_known() -> None:
    outside = {e.reading.system for e in few_nodes() if e.place in ("below", "above")}
    assert outside <= OUTSIDE


def test_every_row_has_its_source() -> None:
    for row in readings():
        assert row.source
        assert row.unit in ("GB/s", "us")
        assert row.value > 0
        assert row.kind in ("measured", "threshold", "reference", "broken")
        assert row.site or row.gpu.startswith(NOT_MODELLED)


@cases(("nodes", "limit", "reading"), [(1, 1080, 673), (18, 1750.7, 840), (36, 1762.8, None)])
def test_a_rack_of_gb200_is_one_domain(nodes: int, limit: float, reading: float | None) -> None:
    """4, 72 and 144 GPUs; the last ones are two racks that InfiniBand connects."""
    question = Question(bench="all_reduce", nodes=nodes, nbytes=8 << 30)
    band = expect(rack(), question)
    assert band.limit == pytest.approx(limit, rel=1e-3)
    assert band.low < (reading or band.typical) < band.high < band.limit
    assert any("NICs" in text for text in band.path) is (nodes > 18)


def test_two_gpus_of_a_domain_use_its_switches() -> None:
    question = Question(bench="osu_bw", nodes=2, src=0, dst=3, nbytes=16 << 20)
    with pytest.raises(NoExpectation, match="unless UCX_CUDA_IPC_ENABLE_MNNVL is set") as caught:
        expect(rack(), question)
    assert caught.value.limit == 900
    assert caught.value.path[1] == "switch-gpu3': 18 x nvlink5 = 900 GB/s"


def rack() -> sites.Site:
    """Two racks of GB200."""
    switched = {"class": "nvlink5", "count": 18, "domain_nodes": 18}
    gpus = GB200 | {
        "links": {"switched": switched},
        "host_link": {"class": "nvlink-c2c", "count": 1},
    }
    nics = [{"name": f"mlx5_{n}", "class": "ib-400g", "near_gpus": [n]} for n in range(4)]
    return site(gpus=gpus, nics=nics, fabric={"rails": 4}).model_copy(
        update={"partitions": (Partition(name="gpu", node_type="gpu", nodes=36),)}
    )


@cases(("name", "threshold"), [("p4d", 300), ("p5", 800)])
def test_thresholds_that_no_healthy_cluster_reaches(name: str, threshold: float) -> None:
    """docs/published.md says so."""
    band = expect(sites.load(name), Question(bench="all_reduce", nodes=2))
    assert band.limit < threshold
    text = (Path(__file__).parents[2] / "docs" / "published.md").read_text()
    assert f"| {threshold} | {band.limit:g} | {band.low:.0f}-{band.high:.0f} |" in text
