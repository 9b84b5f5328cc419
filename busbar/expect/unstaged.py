# SPDX-License-Identifier: MIT
"""The expectation of a GPU operation that no reference is known for: not by way of the host.

Data that passes through host memory crosses the link between each GPU and its host, so that link's
raw rate bounds what staging can reach. More than that proves that the GPUs' own links carried it.
"""

from __future__ import annotations

from busbar.expect import NoExpectation
from busbar.expect.bounds import bound, factor
from busbar.expect.expectation import Expectation
from busbar.expect.topology import raw_rate
from busbar.site import Site, link_classes

_SOURCE = "more than the link from a GPU to its host carries; no reference of this test is known"


def expectation(
    site: Site, *, operation: str, ranks: int, nodes: int, partition: str | None, nbytes: int
) -> Expectation:
    """Bus bandwidth in GB/s of ``operation`` over GPU buffers.

    Raises ``NoExpectation`` where the site does not say how its GPUs reach the host, or where the
    GPUs' links are no faster than that.
    """
    node = site.node_type(partition)
    where = f"site {site.name}, {operation}"
    if node.gpus is None or node.gpus.host_link is None:
        raise NoExpectation("the site does not state how its GPUs reach the host", where=where)
    classes = link_classes(site)
    link = node.gpus.host_link
    # A GPU sends and receives at least what bus bandwidth counts; of an all-reduce no more than
    # its own data, if the sums are made in the host.
    share = max(1.0, factor(operation, ranks))
    staged = raw_rate(link.link_class, link.count, classes) * share
    per_node = ranks // nodes
    most = bound(node, classes, operation, nodes=nodes, ranks_per_node=per_node, algo=None)
    limit = most.gb_per_s
    if staged >= limit:
        raise NoExpectation(
            "the links between GPUs are no faster than those to the host",
            where=where,
            limit=limit,
        )
    return Expectation(
        limit=limit,
        low=staged,
        typical=staged,
        high=limit,
        path=(f"not {link.link_class}",),
        sources=(_SOURCE, classes[link.link_class].source),
        nbytes=nbytes,
        floor=True,
    )
