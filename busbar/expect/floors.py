# SPDX-License-Identifier: MIT
"""Expectations with few or no known readings: a floor that reveals the data path.

The sources of such an expectation state the origin of its floor, to distinguish it from a measured
band.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from busbar.expect.bounds import Shape, bound, factor
from busbar.expect.expectation import Expectation, NoExpectation
from busbar.expect.point import point_to_point
from busbar.expect.question import Question
from busbar.expect.topology import raw_rate
from busbar.site.load import link_classes
from busbar.site.model import Site

_LEAST_SHARE = 0.25
"""Of the link. MPI copies pageable host memory piece by piece and need not fill it, but a quarter
of it at 4 MiB was reported as a fault: openucx/ucx issue 6327, 4.0 of 15.75 GB/s."""
_LEAST_OF_A_COPY = 0.5
"""Of the link, by the GPU's copy engine from pinned memory: a link at half its width or one
generation down stays below."""
_NEARLY_THE_SAME = 0.5
"""Another release, or the other direction, copies in other pieces; half as fast is still it."""
_MEMORIES = {"NVIDIA H100 80GB HBM3": (3352.0, 0.862), "NVIDIA H200": (4814.0, 0.824)}
"""The memory rate in GB/s, and the share of half of it that a copy reaches: 1,446 GB/s on an H100,
1,983 GB/s on an H200, by cudaMemcpy of 256 MiB (h100x1/copies.tsv, h200x1/memory.log)."""
_MEMORY_LOW, _MEMORY_HIGH = 0.92, 1.08
_MEMORY_FLOOR = 0.5
_NOT_STAGED = (
    "more than the link from a GPU to its host carries; no reference of this test is known"
)


def host_copy(site: Site, question: Question) -> Expectation:
    """GB/s of ``osu_bw`` or ``copy`` between host memory and a GPU (``H D`` or ``D H``).

    The host link gives the limit. Without published readings, a floor replaces the band. Raises
    ``NoExpectation`` if the site does not state how its GPUs reach the host.
    """
    try:
        return point_to_point(site, question)
    except NoExpectation as missing:
        if missing.limit is None:
            raise
        floor, source = _host_floor(site, question, missing.limit)
        sources = (f"no band: {missing}", f"floor: {source}")
        return Expectation.at_least(
            *(floor, missing.limit), path=missing.path, sources=sources, nbytes=question.nbytes
        )


def _host_floor(site: Site, question: Question, limit: float) -> tuple[float, str]:
    """Return the least GB/s that shows the way of the data, and where that number comes from."""
    if question.bench == "copy":
        return _LEAST_OF_A_COPY * limit, f"{_LEAST_OF_A_COPY:g} of the link"
    back = replace(question, src=question.dst, dst=question.src, buffers=question.buffers[::-1])
    for other in (question, back):
        with contextlib.suppress(NoExpectation):  # the other direction may be known
            known = point_to_point(site, replace(other, lane=None)).low
            source = f"{_NEARLY_THE_SAME:g} of what is known of {other.buffers} buffers"
            return _NEARLY_THE_SAME * known, f"{source} and any release"
    return _LEAST_SHARE * limit, f"{_LEAST_SHARE:g} of the link, openucx/ucx issue 6327"


def memory_copy(model: str, memory_gb_per_s: float, nbytes: int) -> Expectation:
    """GB/s copied within the memory of one GPU; a floor for GPUs without known readings.

    The GPU states what its memory carries: two transfers a clock cycle over its width. A copy
    reads and writes, so its rate is at most half of that. The output cannot change the rate of a
    memory that is known, and its band with it.
    """
    known, share = _MEMORIES.get(model, (0.0, 0.0))
    memory_gb_per_s = known or memory_gb_per_s
    limit = memory_gb_per_s / 2
    path = (f"memory of the GPU: {memory_gb_per_s:.4g} GB/s, read and written",)
    if not share:
        source = (
            f"floor: {_MEMORY_FLOOR:g} of half the memory rate; no reading is known of {model}"
        )
        low = _MEMORY_FLOOR * limit
        return Expectation.at_least(low, limit, path=path, sources=(source,), nbytes=nbytes)
    typical = share * limit
    return Expectation(
        limit=limit,
        low=_MEMORY_LOW * typical,
        typical=typical,
        high=min(limit, _MEMORY_HIGH * typical),
        path=path,
        sources=(f"{share:g} of half the memory rate",),
        proof="run",
        nbytes=nbytes,
    )


def above_host_link(
    site: Site, *, operation: str, ranks: int, nodes: int, partition: str | None, nbytes: int
) -> Expectation:
    """Bus bandwidth in GB/s of ``operation`` over GPU buffers: not by way of the host.

    Data that passes through host memory crosses the link between each GPU and its host, so that
    link's raw rate bounds what staging can reach. More than that proves that the GPUs' own links
    carried it. Raises ``NoExpectation`` where the site does not say how its GPUs reach the host,
    or where the GPUs' links are not faster than the link to the host.
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
    limit = bound(node, classes, Shape(operation, nodes, ranks // nodes)).gb_per_s
    if staged >= limit:
        raise NoExpectation(
            "links between GPUs are not faster than links to the host", where=where, limit=limit
        )
    sources = (_NOT_STAGED, classes[link.link_class].source)
    path = (f"not {link.link_class}",)
    return Expectation.at_least(staged, limit, path=path, sources=sources, nbytes=nbytes)


def no_band_of_a_port(site: Site, partition: str | None, name: str = "") -> NoExpectation:
    """Return the error that says so, with the raw rate of the port (GB/s) as its limit.

    ``name`` is the NIC; empty for any of the node.
    """
    classes = link_classes(site)
    nics = [nic for nic in site.node_type(partition).nics if name in ("", nic.name)]
    rates = [raw_rate(nic.link_class, 1, classes) for nic in nics]
    return NoExpectation(
        "no reference of this test is known",
        where=f"site {site.name}",
        limit=max(rates, default=None),
    )
