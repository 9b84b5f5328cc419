# SPDX-License-Identifier: MIT
"""Every shipped site has limits for all pairs and collectives, and no reading exceeds them."""

from __future__ import annotations

from itertools import combinations, product

from busbar import site as sites
from busbar.engine.verdicts import verdict_on
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect
from busbar.expect.collective import by_algorithm
from busbar.expect.topology import domain_nodes
from busbar.site.model import Site
from busbar.verdict import Verdict
from tests.cases import cases, some
from tests.expect.published import Published, beyond, question_of, readings, site_of

MIB = 2**20
NAMES = [name for name in sites.names() if name != "local"]
PLACES = [
    (name, partition.name)
    for name in NAMES
    for partition in sites.load(name).partitions
    if sites.load(name).node_type(partition.name).gpus
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


@cases(("name", "partition"), some(PLACES, 2))
def test_every_pair(name: str, partition: str) -> None:
    site = sites.load(name)
    (nodes,) = [each.nodes for each in site.partitions if each.name == partition]
    gpus = site.node_type(partition).gpus
    assert gpus
    some = range(gpus.count) if gpus.count <= 8 else range(0, gpus.count, 7)
    for src, dst in combinations(some, 2):
        limits = {
            limit_of(
                site, Question(bench="osu_bw", nbytes=16 * MIB, src=a, dst=b, partition=partition)
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


@cases("bench", COLLECTIVES)
@cases(("name", "partition"), some(PLACES, 2))
def test_every_collective(name: str, partition: str, bench: str) -> None:
    site = sites.load(name)
    (nodes,) = [each.nodes for each in site.partitions if each.name == partition]
    gpus = site.node_type(partition).gpus
    counts = {count for count in (1, min(2, nodes), nodes) if count * gpus.count > 1}
    for count, mib in product(counts, (1, 64, 1024, 16384)):
        question = Question(bench=bench, nbytes=mib * MIB, nodes=count, partition=partition)
        assert 1 < limit_of(site, question) < 2200


def alike(site: Site, row: Published) -> bool:
    """Whether a reading is of the GPUs and links of a site, and between nodes of its NICs."""
    if row.kind != "measured" or not row.site:
        return False
    other = site_of(row.site, row.gpu, row.nodes).node_type(row.partition)
    gpus = site.node.gpus
    if (
        not gpus
        or not other.gpus
        or (gpus.model, gpus.links) != (other.gpus.model, other.gpus.links)
    ):
        return False
    if row.gpus_per_node > gpus.count:
        return False
    nics = [
        sorted((nic.link_class, nic.count) for nic in node.nics) for node in (site.node, other)
    ]
    return row.nodes <= domain_nodes(site.node) or nics[0] == nics[1]


def test_no_reading_of_such_hardware_is_above_the_limit() -> None:
    compared = set()
    for name in NAMES:
        site = sites.load(name)
        for row in readings():
            if not alike(site, row):
                continue
            compared.add(name)
            try:
                _, question = question_of(row)
            except NoExpectation:
                continue  # a test without a model
            if limit := limit_of(site, question):
                assert row.value != limit, row
                assert not beyond(row, limit), (name, row)
            else:
                assert "host buffers" in row.source
    assert compared >= {
        *("dgx-h100", "dgx-h200", "gb200-nvl72", "gh200x4-slingshot", "hgx-a100"),
        *("mi300x", "p5en", "p6-b200"),
    }


def test_healthy_runs_of_several_nodes_are_not_condemned() -> None:
    """Each reading between such nodes, by any owner, on each shipped site."""
    judged, below = 0, set()
    for site in map(sites.load, NAMES):
        for row in (*readings(), *readings("held-out")):
            if row.nodes > 1 and row.bench in COLLECTIVES and alike(site, row):
                ranks = row.gpus_per_node * row.nodes
                question = Question(row.bench, row.nbytes, row.nodes, ranks, algo=row.algo)
                verdicts = {verdict_on(b, row.value) for b in by_algorithm(site, question)}
                assert Verdict.IMPOSSIBLE not in verdicts
                judged += 1
                below |= set() if verdicts & {Verdict.PASS, Verdict.UNJUDGED} else {row.system}
    assert judged > 300
    # A dip of NCCL's tuning at one size, NCCL without NVLS, and RCCL before its tuning.
    assert below <= {"oci-gb300-4", "gh1221-h100", "amd-mi350x"}
