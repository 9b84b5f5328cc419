# SPDX-License-Identifier: MIT
"""Curves over message size: the fits that they repeat, and the hardware that they reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from busbar import site as sites
from busbar.engine.collect import collect
from busbar.engine.expectation import expectation_of
from busbar.engine.identify import algorithms_of
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import verdict_on
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, collective, point_to_point
from busbar.expect.bounds import factor
from busbar.expect.collective import by_algorithm
from busbar.expect.model import RAMP, bus_bandwidth
from busbar.parse.text import Source
from busbar.site.model import Site
from busbar.verdict import Verdict
from tests.cases import cases

from .published import readings
from .recorded_runs import nccl_json
from .test_expect_collectives import P4DE, P5

MIB, GIB = 2**20, 2**30


def published(system: str, nodes: int, ranks: int, algo: str = "") -> list[tuple[float, float]]:
    """(bytes that count, busbw) of the all-reduces of a system."""
    return [
        (row.nbytes * factor("all_reduce", ranks), row.value)
        for row in readings()
        if (row.system, row.nodes, row.bench, row.kind)
        == (system, nodes, "all_reduce", "measured")
        and row.gpus_per_node * row.nodes == ranks
        and algo in ("", row.algo)
    ]


def series() -> dict[str, list[tuple[float, float]]]:
    h200 = nccl_json("h200x4/nccl_all_reduce_single_process.json")
    return {
        "h200x4 ring": [(n * 1.5, v) for n, v in h200 if n >= MIB],
        "8 x H100 nvls": published("ndh100v5", 1, 8),
        "8 x A100 ring": [p for p in published("ndv4", 1, 8) if p[0] > 4 * MIB],
        "8 x B200": [p for p in published("p6-b200-a", 1, 8) if p[1] != 682.2],
        "72 x GB200": published("gb200-nvl72", 18, 72),
        "2 x p5": [(m * MIB * factor("all_reduce", 16), v) for m, v in P5.items()],
        "2 x p4de": [(m * MIB * factor("all_reduce", 16), v) for m, v in P4DE.items()],
        "2 x 4 GH200": published("alps-gh200", 2, 8),
    }


def misfit(points: list[tuple[float, float]], ramp: float) -> float:
    """The root mean square of relative errors of the best latency and rate."""
    moved, value = np.array(points).T
    time_us = moved / value * 1e-3
    rate = value.max() * np.linspace(1, 1.35, 71)[:, None, None]
    latency = np.geomspace(1, 2000, 120)[:, None]  # the best of a grid of both
    model = (latency**ramp + (moved / rate * 1e-3) ** ramp) ** (1 / ramp)
    return float(np.sqrt(np.mean(np.log(time_us / model) ** 2, axis=-1)).min())


def test_the_ramp_fits_the_published_series() -> None:
    total = {
        ramp: float(np.mean([misfit(points, ramp) ** 2 for points in series().values()]))
        for ramp in (0.5, 0.6, RAMP, 0.8, 1.0)
    }
    assert sorted(total, key=lambda ramp: total[ramp])[:2] == [0.6, RAMP]
    assert total[RAMP] ** 0.5 < 0.03
    assert total[1.0] > 4 * total[RAMP]


@cases("name", series())
def test_two_numbers_describe_all_sizes(name: str) -> None:
    assert misfit(series()[name], RAMP) < 0.06


def test_latency_and_rate_are_the_ends_of_a_curve() -> None:
    assert bus_bandwidth(20, 400, 1) == pytest.approx(1 / 20 * 1e-3, rel=0.05)
    assert bus_bandwidth(20, 400, 1e13) == pytest.approx(400, rel=0.01)


@cases("bench", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
@cases("nbytes", [MIB * 4**n for n in range(6)])
def test_eight_gpus_have_a_band_at_all_sizes_of_the_quick_set(bench: str, nbytes: int) -> None:
    band = collective(sites.load("p5"), Question(bench=bench, nbytes=nbytes))
    least = 0.75 if nbytes > 64 * MIB else 0.35
    assert least * band.typical <= band.low < band.typical < band.high < band.limit
    assert band.outside is (nbytes < MIB)


H100 = {"vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3", "arch": "sm_90", "count": 8}
SWITCHED = {"links": {"switched": {"class": "nvlink4", "count": 18}}, "multicast": True}
L40S = {"model": "NVIDIA L40S", "arch": "sm_89", "count": 4, "multicast": None}


def site(**changes: Any) -> Site:
    """Eight H100 with eight ports of InfiniBand, with other keys."""
    gpus = (
        H100
        | SWITCHED
        | {"host_link": {"class": "pcie5-x16", "count": 1}}
        | changes.pop("gpus", {})
    )
    document = {
        "name": "mine",
        "description": "a test",
        "family": "infiniband",
        "partitions": [{"name": "gpu", "node_type": "gpu", "nodes": 8}],
        "node_types": {"gpu": {"gpus": gpus, "nics": changes.pop("nics", nics("ib-400g"))}},
        "fabric": {"provider": "verbs", "rails": 8} | changes.pop("fabric", {}),
        "deliveries": [{"kind": "wheels", "stack": "cuda"}],
    }
    return Site.model_validate(document | changes)


def nics(link_class: str, count: int = 8, gpus: int = 1) -> list[dict[str, Any]]:
    """NICs that are near so many GPUs each."""
    near = [[*range(gpus * n, gpus * n + gpus)] for n in range(count)]
    return [{"name": f"mlx5_{n}", "class": link_class, "near_gpus": near[n]} for n in range(count)]


def l40s(pairs: tuple[tuple[int, int], ...] = ()) -> Site:
    links: dict[str, Any] = {"through_host": True}
    if pairs:
        links["pairs"] = [{"between": p, "class": "nvlink3", "count": 12} for p in pairs]
    return site(gpus=L40S | {"links": links, "host_link": {"class": "pcie4-x16", "count": 1}})


def missing(site: Site, question: Question) -> NoExpectation:
    """Why there is no band."""
    with pytest.raises(NoExpectation) as caught:
        point_to_point(site, question)
    return caught.value


def test_gpus_on_pci_express_have_limits() -> None:
    found = collective(l40s(), Question(bench="all_reduce", nbytes=GIB))
    assert (found.limit, found.outside) == (31.5, True)
    found = missing(l40s(), Question(bench="osu_bw", src=0, dst=3, nbytes=MIB))
    assert found.limit == 31.5
    assert found.path[0] == "gpu0-host: 1 x pcie4-x16 = 31.5 GB/s (binds)"


@cases(
    ("link_class", "provider", "limit", "banded"),
    [
        ("ib-200g", "verbs", 25, True),
        ("roce-400g", "verbs", 50, True),
        ("slingshot-11", "cxi", 25, True),
        ("opa-400g", "opx", 50, False),
        ("eth-100g", "tcp", 12.5, False),
    ],
)
def test_nodes_without_gpus_have_the_limit_of_a_port(
    link_class: str, provider: str, limit: float, banded: bool
) -> None:
    """A band that was measured on memory of GPUs condemns no reading of host memory."""
    node = {"nics": [{"name": "nic0", "class": link_class, "count": 2}]}
    cpus = site(node_types={"gpu": node}, fabric={"provider": provider, "rails": 2})
    question = Question("osu_bw", 4 * MIB, nodes=2, src=0, dst=0, buffers="H H")
    if banded:
        found = point_to_point(cpus, question)
        assert (found.limit, found.outside) == (limit, True)
        assert found.path[0].startswith("host-nic0: 1 x ")
    else:
        assert missing(cpus, question).limit == limit
    assert missing(cpus, replace(question, buffers="D D")).limit is None


def test_bridged_pairs_reach_the_others_by_the_host() -> None:
    pairs = l40s(((0, 1), (2, 3)))
    ring = Question(bench="all_reduce", algo="ring", nbytes=16 * MIB)
    assert collective(pairs, ring).limit == 63  # both GPUs of a pair reach the others
    assert collective(pairs, Question(bench="all_reduce", ranks=2, nbytes=GIB)).typical > 180
    bridge = point_to_point(pairs, Question(bench="osu_bw", src=0, dst=1, nbytes=MIB))
    assert bridge.limit == 300
    assert missing(pairs, Question(bench="osu_bw", src=1, dst=2, nbytes=MIB)).limit == 31.5


@cases(
    ("links", "text"),
    [
        ({"through_host": True, "all_pairs": {"class": "nvlink4", "count": 1}}, "needs pairs"),
        ({"through_host": False}, "write exactly one of"),
        ({"through_host": True}, "needs host_link"),
    ],
)
def test_forms_of_links_that_exclude_each_other(links: dict[str, Any], text: str) -> None:
    host_link = {"host_link": None} if "host_link" in text else {}
    with pytest.raises(ValueError, match=text):
        site(gpus={"links": links} | host_link)


NO_NEAR = [{"name": f"mlx5_{n}", "class": "ib-400g"} for n in range(8)]


@cases(
    ("changes", "limit"),
    [
        ({}, 50),
        ({"fabric": {"rails_per_pair": 2}}, 100),
        ({"nics": NO_NEAR}, 50),
        ({"nics": NO_NEAR, "fabric": {"rails_per_pair": 2}}, 100),
        ({"nics": [{"name": "a", "class": "ib-400g", "count": 4, "near_gpus": range(8)}]}, 200),
    ],
)
def test_sendrecv_between_nodes_uses_the_nics_of_one_gpu(
    changes: dict[str, Any], limit: float
) -> None:
    band = collective(site(**changes), Question(bench="sendrecv", nodes=2, nbytes=GIB))
    assert band.limit == limit
    assert band.typical < limit
    assert verdict_on(band, 1.1 * limit) is Verdict.IMPOSSIBLE


@cases("nodes", [2, 3, 4, 8, 16, 64, 1024])
def test_limits_and_bands_follow_the_number_of_nodes(nodes: int) -> None:
    """Without a log NVLS is expected where the switch has it, else any algorithm."""
    question = Question(bench="all_reduce", nodes=nodes, nbytes=8 * GIB)
    assert len(by_algorithm(site(), question)) == 1
    bands = by_algorithm(site(gpus={"multicast": False}), question)
    assert len({band.limit for band in bands}) == 1
    assert len(bands) == 3
    ring = collective(site(), replace(question, algo="ring"))
    assert ring.limit == 400
    assert nodes > 16 or 0.8 * 400 < ring.typical < 0.96 * 400
    assert ring.outside is (nodes > 4)


def test_half_the_rate_of_a_tree_is_no_ring_where_libraries_take_trees() -> None:
    """On two nodes with EFA every known run was a tree; with InfiniBand some were rings."""
    question = Question(bench="all_reduce", nodes=2, nbytes=GIB)
    ring = collective(sites.load("p4de"), replace(question, algo="ring")).typical
    for name, verdicts in (("p4de", {Verdict.DEGRADED}), ("hgx-a100", {*Verdict})):
        scale = collective(sites.load(name), replace(question, algo="ring")).typical / ring
        bands = by_algorithm(sites.load(name), question)
        assert {verdict_on(band, scale * ring) for band in bands} <= verdicts
    assert Verdict.PASS in {verdict_on(band, scale * ring) for band in bands}


def test_bands_widen_with_the_distance_from_the_data() -> None:
    def width(site: Site, nodes: int, mib: float = 1024) -> float:
        band = collective(site, Question(bench="all_reduce", nodes=nodes, nbytes=int(mib * MIB)))
        return band.low / band.typical

    known = width(site(), 2)
    assert known > 0.78
    tcp = site(fabric={"provider": "tcp"}, nics=nics("eth-200g", 4, 2))
    assert width(tcp, 2) < known
    assert collective(tcp, Question(bench="all_reduce", nodes=2, nbytes=GIB)).outside
    widths = [width(site(), nodes) for nodes in (2, 16, 1024)]
    assert widths == sorted(widths, reverse=True)
    assert width(site(), 2, 1 / 1024) < width(site(), 2, 16) < known


def test_a_reading_below_a_band_without_data_is_not_condemned() -> None:
    band = collective(site(), Question(bench="all_reduce", nodes=256, nbytes=8 * GIB))
    assert band.outside
    assert verdict_on(band, band.low * 1.01) is Verdict.PASS
    assert verdict_on(band, band.low * 0.51) is Verdict.UNJUDGED
    assert verdict_on(band, band.low * 0.49) is Verdict.DEGRADED


def test_nics_that_do_not_read_gpu_memory_are_staged() -> None:
    slow = [{"name": "eth0", "class": "roce-400g", "count": 8, "gpudirect": False}]
    for link, least in (("pcie5-x16", 252), ("pcie3-x16", 63)):
        host = {"host_link": {"class": link, "count": 1}}
        staged = collective(site(nics=slow, gpus=host), Question("all_reduce", 8 * GIB, nodes=2))
        assert staged.typical <= least


def test_oversubscribed_uplinks_lower_the_low_end_alone() -> None:
    question = Question(bench="alltoall", nodes=4, nbytes=8 * GIB)
    usual = collective(site(), question)
    crowded = collective(site(fabric={"oversubscription": 2}), question)
    assert (crowded.limit, crowded.typical, crowded.high) == pytest.approx(
        (usual.limit, usual.typical, usual.high)
    )
    assert crowded.low == pytest.approx(usual.low / 2, rel=0.05)
    with pytest.raises(ValueError, match="oversubscription"):
        site(fabric={"oversubscription": 0.5})


@cases("nbytes", [8, 1 << 10, 1 << 16, 1 << 20, 1 << 30, 16 << 30])
def test_any_size_and_number_of_nodes_has_an_answer(nbytes: int) -> None:
    last = 0.0
    for nodes in (1, 2, 5, 17, 1024):
        for bench in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"):
            band = collective(site(), Question(bench=bench, nodes=nodes, nbytes=nbytes))
            assert 0 < band.low < band.typical < band.high <= band.limit
        last = band.typical
    assert last > 0


def test_switches_of_infiniband_may_reduce() -> None:
    """A published 480 GB/s on many nodes is no fault of the measurement."""
    question = Question(bench="all_reduce", nodes=16, nbytes=GIB)
    least = collective(site(nics=nics("roce-400g")), question).limit
    assert collective(site(), question).limit > 480 > least


# A band of one algorithm is for runs of that algorithm.


def log(algorithm: str) -> str:
    return (
        "node1:10:10 [0] NCCL INFO AllReduce: 8589934592 Bytes -> Algo"
        f" {algorithm} proto SIMPLE channel{{Lo..Hi}}={{0..15}}\n"
    )


def verdict(value: float, algorithm: str = "", *, forced: bool = False, nodes: int = 2) -> Verdict:
    """Of an all-reduce of 8 GiB on H100 with four RoCE ports, as a site of family roce."""
    run = Run(
        site=site(family="roce", nics=nics("roce-400g", 4, 2), fabric={"rails": 4}),
        partition="gpu",
        bench="all_reduce",
        harness="nccl-tests",
        nodes=nodes,
        ranks=8 * nodes,
        environment={"NCCL_ALGO": algorithm} if forced else {},
        listed=("",),
    )
    if algorithm:
        (output,) = collect([Source.from_text("nccl.log", log(algorithm))])
        run = replace(run, algorithms=algorithms_of(output))
    reading = Reading("busbw", 8 * GIB, value)
    return verdict_on(expectation_of(run)(reading), value)


@cases(
    ("algorithm", "value", "expected"),
    [
        ("RING", 190, Verdict.PASS),
        ("1", 190, Verdict.PASS),
        ("RING", 140, Verdict.DEGRADED),
        ("NVLS_TREE", 320, Verdict.PASS),
        ("NVLS_TREE", 240, Verdict.DEGRADED),
        ("TREE", 300, Verdict.PASS),
        ("TREE", 200, Verdict.DEGRADED),
        # On one node or two NCCL reduces in the switch, so a ring shows that it is off.
        ("", 190, Verdict.DEGRADED),
        ("", 300, Verdict.PASS),
        ("", 150, Verdict.DEGRADED),
        ("", 380, Verdict.IMPOSSIBLE),
        ("COLLNET_DIRECT", 300, Verdict.PASS),
    ],
)
def test_the_band_is_that_of_the_algorithm_that_ran(
    algorithm: str, value: float, expected: Verdict
) -> None:
    assert verdict(value, algorithm) is expected


def test_a_forced_algorithm_is_compared_with_what_the_library_would_reach() -> None:
    assert verdict(190, "RING", forced=True) is Verdict.DEGRADED


def test_the_band_of_h20_is_proven_by_its_reference() -> None:
    h20 = collective(sites.load("h20-roce"), Question("all_reduce", nodes=2, algo="ring"))
    assert h20.low < 195 < h20.high
    assert h20.proof == "replay"


def test_an_unknown_link_class_is_an_error() -> None:
    with pytest.raises(BusbarError, match="unknown link class 'ib-250g'"):
        collective(site(nics=nics("ib-250g")), Question(bench="all_reduce", nodes=2))


def test_an_unknown_algorithm_is_an_error() -> None:
    with pytest.raises(BusbarError, match="unknown algorithm"):
        collective(site(), Question(bench="all_reduce", algo="star"))


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, Verdict.PASS), (0.5, Verdict.DEGRADED)])
def test_sendrecv_has_fewer_channels_for_small_messages(scale: float, verdict: Verdict) -> None:
    """Readings of ten nodes of 8 H100 (xxrjun/nccl-tests-cluster), which the fit does not have."""
    for mib, value in {
        32: 79.6,
        64: 81.6,
        128: 161.7,
        256: 297.1,
        512: 355.0,
        8192: 366.1,
    }.items():
        question = Question(bench="sendrecv", nbytes=mib * MIB)
        band = collective(sites.load("dgx-h100"), question)
        assert verdict_on(band, scale * value) is verdict
