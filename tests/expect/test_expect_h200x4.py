# SPDX-License-Identifier: MIT
"""Recorded runs of four H200: healthy ones inside their band, degraded ones outside."""

from __future__ import annotations

from itertools import permutations

import pytest

from busbar import site as sites
from busbar.engine.verdicts import verdict_on
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, collective, point_to_point
from busbar.expect.expectation import Expectation
from busbar.expect.point import multi_pair
from busbar.site.model import Site
from busbar.verdict import Verdict
from tests.cases import cases

from .fits import fit_time
from .recorded_runs import nccl, nccl_json, osu, osu_gb_per_s, tuning

MIB = 2**20


@pytest.fixture(scope="module")
def site() -> Site:
    return sites.load("h200x4")


def pair(site: Site, bench: str, nbytes: int, **more: object) -> Expectation:
    return point_to_point(site, Question(bench=bench, src=0, dst=1, nbytes=nbytes, **more))


def all_reduce(site: Site, nbytes: int) -> Expectation:
    return collective(site, Question(bench="all_reduce", nbytes=nbytes))


@cases("name", ["healthy_a", "get_zcopy", "put_zcopy", "ipc_cache_off", "ucx122"])
def test_healthy_bandwidth(site: Site, name: str) -> None:
    rows = [row for row in osu_gb_per_s(f"h200x4/osu_bw_{name}.log") if row[0] >= MIB]
    assert len(rows) >= 7
    for nbytes, value in rows:
        band = pair(site, "osu_bw", nbytes)
        assert band.low <= value <= band.high <= 1.25 * band.low
        assert (verdict_on(band, value), band.proof) == (Verdict.PASS, "run")


@cases("stack", ["1.14.1, default", "THRESH=1", "1.22.0, default", "repeated"])
def test_healthy_bandwidth_of_another_node(site: Site, stack: str) -> None:
    rows = [row for row in tuning("osu_bw", stack) if row[0] >= MIB]
    assert rows
    for nbytes, value in rows:
        assert verdict_on(pair(site, "osu_bw", nbytes), value / 1e3) is Verdict.PASS


def test_all_pairs_share_one_band(site: Site) -> None:
    bands = {
        (band.low, band.typical, band.high, band.limit)
        for src, dst in permutations(range(4), 2)
        for band in [point_to_point(site, Question("osu_bw", 16 * MIB, src=src, dst=dst))]
    }
    ((*_, limit),) = bands
    assert limit == 450


def test_both_directions_and_several_pairs(site: Site) -> None:
    for nbytes, value in osu_gb_per_s("h200x4/osu_bibw_healthy.log"):
        band = pair(site, "osu_bibw", nbytes)
        assert band.limit == 900
        assert verdict_on(band, value) is Verdict.PASS
        assert value <= band.high
    rows = osu_gb_per_s("h200x4/osu_mbw_mr.log")
    assert len(rows) == 5
    for nbytes, value in rows:
        band = multi_pair(site, Question(nbytes=nbytes))
        assert band.limit == 900
        assert band.low <= value <= band.high
        assert multi_pair(site, Question(nbytes=nbytes, ranks=2)).limit == 450
    with pytest.raises(NoExpectation, match="share direct links"):
        multi_pair(sites.load("mi250x"), Question())
    with pytest.raises(BusbarError, match="cannot form pairs of 3 ranks"):
        multi_pair(site, Question(ranks=3))


def test_latency(site: Site) -> None:
    for nbytes, value in tuning("osu_latency", "THRESH=1"):
        if nbytes <= 8192:
            band = pair(site, "osu_latency", nbytes)
            assert band.unit == "us"
            assert band.low <= value <= band.high
            assert band.limit < band.low
    default = osu("h200x4/osu_latency_healthy.log")
    for nbytes, value in default:
        environment = {"OMPI_MCA_pml": "ucx"}  # what that run had: no UCX_RNDV_THRESH
        band = pair(site, "osu_latency", nbytes, environment=environment)
        assert band.low <= value <= band.high


def test_latency_without_the_tuning_is_degraded(site: Site) -> None:
    for nbytes, value in osu("h200x4/osu_latency_healthy.log"):
        verdict = verdict_on(pair(site, "osu_latency", nbytes), value) if nbytes <= 8192 else None
        assert verdict in (None, Verdict.DEGRADED)


def test_same_gpu_is_impossible_as_a_pair(site: Site) -> None:
    for nbytes, value in osu_gb_per_s("h200x4/osu_bw_same_gpu.log"):
        assert verdict_on(pair(site, "osu_bw", nbytes), value) is Verdict.IMPOSSIBLE
    with pytest.raises(NoExpectation, match="both ranks are on GPU 0"):
        point_to_point(site, Question(bench="osu_bw", src=0, dst=0, nbytes=MIB))


@cases("name", ["osu_bw_hd", "osu_bw_host"])
def test_host_buffers_are_far_below(site: Site, name: str) -> None:
    rows = osu_gb_per_s(f"h200x4/{name}.log")
    assert rows
    for nbytes, value in rows:
        assert verdict_on(pair(site, "osu_bw", nbytes), value) is Verdict.DEGRADED


@cases(
    ("nbytes", "buffers", "why", "limit"),
    [
        (MIB // 2, "D D", "1 MiB to 256 MiB", 450),
        (2**29, "D D", "1 MiB to 256 MiB", 450),
        (MIB, "H D", "covers 4 MiB to 16 MiB, not 1 MiB", 63),
        (MIB, "D H", "no data for D H", 63),
        (MIB, "H H", "host buffers do not use GPU links", None),
    ],
)
def test_where_there_is_no_band(
    site: Site, nbytes: int, buffers: str, why: str, limit: float | None
) -> None:
    with pytest.raises(NoExpectation, match=why) as caught:
        pair(site, "osu_bw", nbytes, buffers=buffers)
    assert caught.value.limit == limit
    with pytest.raises(BusbarError, match="unknown buffers 'M M'"):
        pair(site, "osu_bw", MIB, buffers="M M")


ONE_PROCESS = "nccl_all_reduce_single_process.json"
HEALTHY = ("nccl_healthy_a.log", "nccl_no_debug.log", "nccl_algo_ring.log", "nccl_cumem_off.log")
DEGRADED = (
    *("buffsize_64k", "channels_1", "launch_blocking", "one_core", "p2p_disabled"),
    *("p2p_shm_disabled", "proto_ll", "proto_ll128"),
)


@cases("name", [*HEALTHY, ONE_PROCESS])
def test_healthy_all_reduce(site: Site, name: str) -> None:
    read = nccl if name in HEALTHY else nccl_json
    rows = [row for row in read(f"h200x4/{name}") if row[0] >= 4 * MIB]
    assert len(rows) == 5 if name in HEALTHY else max(rows)[0] == 8 * 2**30
    for nbytes, value in rows:
        band = all_reduce(site, nbytes)
        assert band.limit == 450
        assert band.low <= value <= band.high <= 1.5 * band.low


@cases("name", DEGRADED)
def test_degraded_all_reduce(site: Site, name: str) -> None:
    rows = [row for row in nccl(f"h200x4/nccl_{name}.log") if row[0] >= 4 * MIB]
    assert len(rows) == 5
    assert Verdict.DEGRADED in [verdict_on(all_reduce(site, size), value) for size, value in rows]


def test_family_holds_what_the_fit_gives(site: Site) -> None:
    bands = sites.link_classes(site)["nvlink4"].bands
    (bandwidth,) = [band for band in bands if band.bench == "osu_bw"]
    points = [
        (size, size / value * 1e-3)
        for name in ("healthy_a", "get_zcopy", "ipc_cache_off", "ucx122")
        for size, value in osu_gb_per_s(f"h200x4/osu_bw_{name}.log")
        if size >= MIB
    ]
    points += [(size, size / value) for size, value in tuning("osu_bw", "") if size >= MIB]
    assert len(points) == bandwidth.readings
    latency_us, rate = fit_time(points)
    assert bandwidth.latency_us == pytest.approx(latency_us, rel=0.01)
    assert bandwidth.share * 450 == pytest.approx(rate, rel=0.01)


def test_family_holds_what_the_fit_of_latency_gives(site: Site) -> None:
    bands = sites.link_classes(site)["nvlink4"].bands
    tuned, large, eager = [band for band in bands if band.bench == "osu_latency"]
    points = tuning("osu_latency", "THRESH=1")
    points += [row for row in osu("h200x4/osu_latency_healthy.log") if row[0] >= 16384]
    latency_us, rate = fit_time(points)
    for band in (tuned, large):
        assert band.latency_us == pytest.approx(latency_us, rel=0.01)
        assert band.share * 450 == pytest.approx(rate, rel=0.02)
    small = [row for row in osu("h200x4/osu_latency_healthy.log") if row[0] <= 8192]
    latency_us, rate = fit_time(small)
    assert len(small) == eager.readings
    assert eager.latency_us == pytest.approx(latency_us, rel=0.01)
    assert eager.share * 450 == pytest.approx(rate, rel=0.02)


def test_bands_of_several_communicators_are_not_proven(site: Site) -> None:
    """No run of them has been published; one communicator was measured here."""
    one, two = (
        collective(site, Question("all_reduce", 1 << 30, ranks=4, communicators=count))
        for count in (1, 2)
    )
    assert (one.proof, one.outside) == ("run", False)
    assert (two.proof, two.outside) == ("none", True)
