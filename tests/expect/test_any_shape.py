# SPDX-License-Identifier: MIT
"""Any size and count: fewer NICs, no GPUDirect, no NVLink, crowded uplinks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product

from busbar import site as sites
from busbar.expect import COLLECTIVES, NoExpectation, Question, expect
from busbar.expect.bounds import factor
from busbar.site.links import Links
from busbar.site.model import NodeType, Site
from tests.cases import cases, some

SIZES = [8 << 6 * n for n in range(6)] + [16 << 30]
NODES = (1, 2, 17, 1024)


def nics(site: Site, change: Callable[[int], dict[str, object]], count: int = 128) -> Site:
    ports = enumerate(site.node.nics[:count])
    return node(site, nics=tuple(nic.model_copy(update=change(at)) for at, nic in ports))


def node(site: Site, **update: object) -> Site:
    changed: NodeType = site.node.model_copy(update=update)
    return site.model_copy(update={"node_types": {site.partitions[0].node_type: changed}})


def without_links(site: Site) -> Site:
    update = {"links": Links(through_host=True), "multicast": None}
    return node(site, gpus=site.node.gpus.model_copy(update=update))


def crowded(site: Site) -> Site:
    return site.model_copy(
        update={"fabric": site.fabric.model_copy(update={"oversubscription": 4.0})}
    )


SHAPES: dict[str, Callable[[Site], Site]] = {
    "as it is": lambda site: site,
    "one NIC": lambda site: nics(site, lambda _: {}, 1),
    "two GPUs a NIC": lambda site: nics(site, lambda n: {"near_gpus": (2 * n, 2 * n + 1)}, 4),
    "near GPUs unknown": lambda site: nics(site, lambda _: {"near_gpus": ()}),
    "no GPUDirect": lambda site: nics(site, lambda _: {"gpudirect": False}),
    "no NVLink": without_links,
    "crowded uplinks": crowded,
}


@cases(("name", "shape"), some(product(("dgx-h100", "h20-roce", "mi300x-ib", "p5"), SHAPES), 3))
def test_longer_messages_take_longer_and_more_nodes_are_no_faster(name: str, shape: str) -> None:
    site = SHAPES[shape](sites.load(name))
    for bench, per_node in product(COLLECTIVES, (1, 8)):
        algorithm_bandwidth = []
        for nodes in NODES[per_node == 1 :]:
            ranks, times = nodes * per_node, []
            for nbytes in SIZES:
                band = expect(site, Question(bench, nbytes, nodes, ranks))
                assert 0 < band.low < band.typical < band.high <= band.limit
                times.append(nbytes * factor(bench, ranks) / band.typical)
            assert all(first < second for first, second in pairwise(times))
            algorithm_bandwidth.append(band.limit / factor(bench, ranks))
        if bench != "sendrecv":
            several = algorithm_bandwidth[per_node > 1 :]
            assert all(a >= b * 0.9999 for a, b in pairwise(several)), bench


@cases(("bench", "buffers"), product(("osu_bw", "osu_latency"), ("D D", "H D", "H H")))
def test_pairs_of_any_size(bench: str, buffers: str) -> None:
    for name, nodes in product(("dgx-h100", "mi250x-slingshot", "l40s"), (1, 2, 1024)):
        limits = []
        for nbytes in SIZES:
            target = 1 if nodes == 1 else 0
            question = Question(bench, nbytes, nodes, src=0, dst=target, buffers=buffers)
            try:
                limits.append(expect(sites.load(name), question).limit)
            except NoExpectation as missing:
                limits += [missing.limit] if missing.limit else []
        assert limits == sorted(limits)
