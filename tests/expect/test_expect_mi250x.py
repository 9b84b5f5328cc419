# SPDX-License-Identifier: MIT
"""The published MI250X readings follow from the link counts of the node."""

from __future__ import annotations

import pytest

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, point_to_point
from busbar.expect.graph import gpu, widest_path
from busbar.expect.topology import node_graph
from busbar.site.links import Links, PairLink
from busbar.site.model import Site
from tests.cases import cases
from tests.said import Command

from .fits import Reading, fit
from .recorded_runs import osu_gb_per_s

ENGINES = ("kernel", "sdma")
SIZE = 16 * 2**20


def readings() -> list[Reading]:
    found = []
    for sdma, engine in enumerate(ENGINES):
        for peer in range(1, 8):
            ((size, value),) = osu_gb_per_s(f"mi250x/osu_bw_sdma{sdma}_gcd0_gcd{peer}.log")
            assert size == SIZE
            found.append(Reading(0, peer, engine, value))
    return found


READINGS = readings()


def expected(site: Site, reading: Reading, bench: str = "osu_bw"):
    ends = {"src": reading.src, "dst": reading.dst, "engine": reading.engine}
    return point_to_point(site, Question(bench=bench, nbytes=SIZE, **ends))


def inside(site: Site, reading: Reading) -> bool:
    band = expected(site, reading)
    return band.low <= reading.gb_per_s <= band.high


def with_count(site: Site, between: tuple[int, int], count: int) -> Site:
    """The site with another number of links between two GCDs; without them for 0."""
    node = site.node
    pairs = tuple(
        PairLink(between=link.between, link_class=link.link_class, count=count)
        if link.between == between
        else link
        for link in node.gpus.links.pairs
        if link.between != between or count
    )
    gpus = node.gpus.model_copy(update={"links": Links(pairs=pairs)})
    types = {site.partitions[0].node_type: node.model_copy(update={"gpus": gpus})}
    return site.model_copy(update={"node_types": types})


@pytest.fixture(scope="module")
def site() -> Site:
    return sites.load("mi250x")


@cases("reading", READINGS)
def test_reading_is_in_its_band(site: Site, reading: Reading) -> None:
    band = expected(site, reading)
    assert band.low <= reading.gb_per_s <= band.high <= band.limit
    assert band.typical == pytest.approx(reading.gb_per_s, rel=0.10)
    assert band.high / band.low <= 1.25
    assert band.proof == "replay"


def test_published_link_counts_and_hops(site: Site) -> None:
    graph = node_graph(site.node, sites.link_classes(site))
    counts = {near: hop.count for near, hop in graph.hops[gpu(0)].items()}
    assert (counts[gpu(1)], counts[gpu(2)], counts[gpu(6)]) == (4, 1, 2)
    assert gpu(3) in graph.hops[gpu(1)]
    assert len(widest_path(graph, gpu(0), gpu(3)).hops) == 2
    # CDNA 2 has eight links a GCD; one goes to the host.
    assert all(sum(hop.count for hop in hops.values()) <= 7 for hops in graph.hops.values())


def binding_links(site: Site) -> set[tuple[int, int]]:
    graph = node_graph(site.node, sites.link_classes(site))
    found = set()
    for peer in range(1, 8):
        hop = widest_path(graph, gpu(0), gpu(peer)).binding
        ends = sorted(int(end.removeprefix("gpu")) for end in (hop.start, hop.end))
        found.add(tuple(ends))
    return found


def test_binding_links(site: Site) -> None:
    assert binding_links(site) == {(0, 1), (0, 2), (1, 3), (1, 5), (0, 6)}


def test_a_direct_link_is_taken_even_where_another_way_is_wider(site: Site) -> None:
    """More links on 1-3 open 0-1-3-2 with 100 GB/s, but 0 and 2 have a link of their own."""
    wider = with_count(site, (1, 3), 2)
    assert expected(wider, Reading(0, 2, "kernel", 1)).limit == 50
    assert expected(wider, Reading(0, 3, "kernel", 1)).limit == 100


def altered(site: Site, between: tuple[int, int], change: int) -> Site:
    links = {link.between: link.count for link in site.node.gpus.links.pairs}
    return with_count(site, between, links[between] + change)


@cases(
    ("between", "change"),
    [
        *[(between, 1) for between in [(0, 1), (0, 2), (1, 3), (1, 5), (0, 6)]],
        *[(between, -1) for between in [(0, 1), (0, 2), (0, 6)]],
    ],
)
def test_a_count_altered_by_one_on_a_binding_link_is_refuted(
    site: Site, between: tuple[int, int], change: int
) -> None:
    other = altered(site, between, change)
    assert not all(inside(other, reading) for reading in READINGS)


@cases(("between", "peer"), [((1, 3), 3), ((1, 5), 5)])
def test_readings_from_gcd_0_cannot_refute_the_loss_of_1_3_or_1_5(
    site: Site, between: tuple[int, int], peer: int
) -> None:
    """The exception: without the link another way of the same width is left.

    For 1-5 it has one GPU more on it, whose cost is within the band.
    """
    other = altered(site, between, -1)
    assert all(inside(other, reading) for reading in READINGS)
    graphs = [node_graph(each.node, sites.link_classes(each)) for each in (site, other)]
    was, left = (widest_path(graph, gpu(0), gpu(peer)) for graph in graphs)
    assert was.hops != left.hops
    assert was.gb_per_s == left.gb_per_s
    assert 0 <= left.forwarding_gpus - was.forwarding_gpus <= 1


def test_family_holds_what_the_fit_gives(site: Site) -> None:
    model = fit(site, READINGS)
    assert model.parameters == 4 < len(READINGS) / 2
    link = sites.link_classes(site)["xgmi-mi250x"]
    shares = {band.engine: band for band in link.bands if band.bench == "osu_bw"}
    for stated, fitted in (
        (shares["kernel"].share, model.share["kernel"]),
        (shares["kernel"].hop_share, model.hop_share),
        (shares["sdma"].share, model.share["sdma"]),
        (link.engines["sdma"].share, model.cap_share["sdma"]),
    ):
        assert stated == pytest.approx(fitted, rel=0.005)


@cases("peer", range(1, 8))
def test_leave_one_or_a_whole_pair_out(site: Site, peer: int) -> None:
    graph = node_graph(site.node, sites.link_classes(site))
    path = widest_path(graph, gpu(0), gpu(peer))
    others = [r for r in READINGS if r.dst != peer]
    pair = [r for r in READINGS if r.dst == peer]
    assert len(pair) == len(ENGINES)
    for out in pair:
        for left in (others, [*others, *(r for r in pair if r is not out)]):
            predicted = fit(site, left).predict(path, out.engine)
            assert predicted == pytest.approx(out.gb_per_s, rel=0.12)


def test_sdma_cap_binds_only_on_wide_paths(site: Site) -> None:
    limits = {p: expected(site, Reading(0, p, "sdma", 1)).limit for p in range(1, 8)}
    assert set(limits.values()) == {50}
    kernel = {p: expected(site, Reading(0, p, "kernel", 1)).limit for p in range(1, 8)}
    assert kernel == {1: 200, 2: 50, 3: 50, 4: 50, 5: 50, 6: 100, 7: 100}


def test_direction_does_not_matter(site: Site) -> None:
    for src, dst in [(0, 1), (2, 5), (3, 4)]:
        there = point_to_point(site, Question(bench="osu_bw", src=src, dst=dst, nbytes=SIZE))
        back = point_to_point(site, Question(bench="osu_bw", src=dst, dst=src, nbytes=SIZE))
        assert there.typical == back.typical


def test_no_band_where_no_data(site: Site) -> None:
    with pytest.raises(NoExpectation, match="16 MiB to 16 MiB, not 1 MiB") as caught:
        point_to_point(site, Question(bench="osu_bw", src=0, dst=1, nbytes=2**20, engine="sdma"))
    assert caught.value.limit == 50
    with pytest.raises(NoExpectation, match="no data"):
        point_to_point(site, Question(bench="osu_latency", src=0, dst=1, nbytes=8))


@cases(
    ("environment", "engine"),
    [
        (None, "kernel"),  # the family's environment
        ({"HSA_ENABLE_SDMA": "0"}, "kernel"),
        ({"HSA_ENABLE_SDMA": "1"}, "sdma"),
        ({}, "sdma"),  # what ROCm does by itself
    ],
)
def test_the_environment_chooses_the_engine(
    site: Site, environment: dict[str, str] | None, engine: str
) -> None:
    band = point_to_point(site, Question(bench="osu_bw", src=0, dst=1, environment=environment))
    assert band == point_to_point(site, Question(bench="osu_bw", src=0, dst=1, engine=engine))


def test_unknown_engine_and_gpu(site: Site) -> None:
    with pytest.raises(BusbarError, match=r"unknown engine 'blitz'.*kernel, sdma"):
        point_to_point(site, Question(bench="osu_bw", src=0, dst=1, nbytes=SIZE, engine="blitz"))
    with pytest.raises(BusbarError, match="no GPU 8"):
        point_to_point(site, Question(bench="osu_bw", src=0, dst=8, nbytes=SIZE))


def test_command_prints_path_and_number_of_parameters(busbar: Command) -> None:
    document = busbar("expect --site mi250x --from 0 --to 3 --engine kernel --json").json
    assert document["limit_gb_per_s"] == 50
    assert document["path"][1] == "gpu1-gpu3: 1 x xgmi-mi250x = 50 GB/s (binds)"
    assert document["low_gb_per_s"] < document["typical_gb_per_s"] < document["high_gb_per_s"]
    assert document["sources"]
    said = busbar("expect --site mi250x")
    assert (said.status, "4 numbers fitted to 14 readings" in said.out) == (0, True)
