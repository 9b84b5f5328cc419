# SPDX-License-Identifier: MIT
"""Every shipped site has limits for all pairs and collectives, and no reading exceeds them."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from busbar import site as sites
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect
from busbar.expect.domain import domain_nodes
from busbar.expect.published import _question, readings, site_of
from busbar.parse.published import PublishedReading
from busbar.site.model import Site

MIB = 2**20
PLACES = [
    (name, partition.name)
    for name in sites.names()
    if name != "local"
    for partition in sites.load(name).partitions
]


def limit_of(site: Site, question: Question) -> float:
    """Return the limit of a question, after a look at its band."""
    try:
        band = expect(site, question)
    except NoExpectation as missing:
        return missing.limit or 0
    assert 0 < band.low < band.typical < band.high <= band.limit
    assert band.path
    assert band.sources
    return band.limit


@pytest.mark.parametrize(("name", "partition"), PLACES)
def test_every_pair(name: str, partition: str) -> None:
    site = sites.load(name)
    (nodes,) = [each.nodes for each in site.partitions if each.name == partition]
    gpus = site.node_type(partition).gpus
    assert gpus
    some = range(gpus.count) if gpus.count <= 8 else range(0, gpus.count, 7)
    for src, dst in permutations(some, 2):
        limits = {
            limit_of(
                site,
                Question(bench="osu_bw", nbytes=16 * MIB, src=a, dst=b, partition=partition),
            )
            for a, b in ((src, dst), (dst, src))
        }
        assert len(limits) == 1
        assert 10 < limits.pop() <= 2150
    for src, dst in product(some, some) if nodes > 1 else ():
        question = Question(
            bench="osu_bw", nbytes=4 * MIB, nodes=2, src=src, dst=dst, partition=partition
        )
        assert 10 < limit_of(site, question) <= 900


@pytest.mark.parametrize("bench", COLLECTIVES)
@pytest.mark.parametrize(("name", "partition"), PLACES)
def test_every_collective(name: str, partition: str, bench: str) -> None:
    site = sites.load(name)
    (nodes,) = [each.nodes for each in site.partitions if each.name == partition]
    for count, mib in product({1, min(2, nodes), nodes}, (1, 64, 1024, 16384)):
        question = Question(bench=bench, nbytes=mib * MIB, nodes=count, partition=partition)
        assert 1 < limit_of(site, question) < 2200


def alike(site: Site, reading: PublishedReading) -> bool:
    """Whether a reading is of the GPUs and links of a site, and between nodes of its NICs."""
    if reading.kind != "measured" or "Intel" in reading.gpu:
        return False
    try:
        published = site_of(reading)
    except BusbarError:
        return False
    own, other = site.node.gpus, published.node.gpus
    if not own or not other or (own.model, own.links) != (other.model, other.links):
        return False
    if reading.gpus_per_node > own.count:
        return False
    nics = [
        sorted((nic.link_class, nic.count) for nic in each.node.nics) for each in (site, published)
    ]
    return reading.nodes <= domain_nodes(site.node) or nics[0] == nics[1]


@pytest.mark.parametrize("name", [name for name in sites.names() if name != "local"])
def test_no_reading_of_such_hardware_is_above_the_limit(name: str) -> None:
    site = sites.load(name)
    for reading in readings():
        if not alike(site, reading):
            continue
        try:
            question = _question(site_of(reading), reading)
        except NoExpectation:
            continue  # a test without a model
        limit = limit_of(site, question)
        if not limit:
            assert "host buffers" in reading.source
        elif reading.unit == "us":
            assert reading.value > limit, reading
        else:
            assert reading.value < limit, reading


def test_the_comparison_with_readings_compares() -> None:
    compared = {
        name
        for name in sites.names()
        if any(alike(sites.load(name), reading) for reading in readings())
    }
    assert compared >= {
        *("dgx-h100", "dgx-h200", "gb200-nvl72", "gh200x4-slingshot", "hgx-a100"),
        *("mi300x", "p5en", "p6-b200"),
    }
