# SPDX-License-Identifier: MIT
"""Limits and bands of the ways that data takes, from which the tools choose."""

from __future__ import annotations

from dataclasses import replace

from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.expect import COLLECTIVES, NoExpectation, Question, collective, point_to_point
from busbar.expect.collective import by_algorithm
from busbar.expect.expectation import Expectation
from busbar.expect.floors import above_host_link, host_copy, no_band_of_a_port
from busbar.expect.point import BANDWIDTH, LATENCY
from busbar.site.model import Site

_BY_BANDWIDTH_BYTES = 1 << 28
"""From this size on a collective takes its time by bandwidth, not by latency."""
_FAR_BELOW = 0.4
_PUBLISHED = ("all_reduce", "all_gather", "reduce_scatter")
"""The collectives of which healthy runs between nodes were published."""
_CLEARLY_BELOW = 0.5
"""No run comes near the limit, so a floor close to it would condemn healthy runs."""


def site_of(run: Run) -> Site:
    """Return the site; raise ``NoExpectation`` without one."""
    if run.site is None:
        raise NoExpectation("no site describes the machine")
    return run.site


def no_bands(run: Run, reading: Reading) -> list[Expectation]:
    """Refuse the readings of a tool whose rates say nothing of links."""
    where = f"site {run.site.name}" if run.site else ""
    raise NoExpectation(f"no band for {run.bench}", where=where)


def pair(run: Run, reading: Reading) -> Expectation:
    """Point to point, in one direction unless the benchmark says otherwise."""
    site = site_of(run)
    if run.memory == "host":
        raise NoExpectation("host buffers use no GPU link", where=f"site {site.name}")
    bench, source, target = run.bench, run.gpu(0), run.gpu(1)
    if reading.source is not None and reading.target is not None:
        bench = LATENCY if reading.kind == "latency_us" else BANDWIDTH
        source, target = run.gpu(reading.source), run.gpu(reading.target)
    question = replace(
        question_of(run, reading),
        bench=bench,
        src=source,
        dst=target,
        buffers=reading.buffers or run.buffers or "D D",
    )
    if bench == BANDWIDTH and question.buffers in ("H D", "D H") and question.nodes == 1:
        return host_copy(site, question)
    question = replace(question, engine=run.engine, driver_us=reading.driver_us)
    return point_to_point(site, question)


def question_of(run: Run, reading: Reading) -> Question:
    """Return the question of a reading, without what it is between."""
    return Question(
        nbytes=reading.nbytes,
        nodes=run.nodes or 1,
        ranks=run.ranks,
        harness=run.harness,
        lane=run.lane,
        environment=run.environment,
        partition=run.partition,
    )


def collectives(run: Run, reading: Reading) -> list[Expectation]:
    """A collective of GPUs; of a large message without a band, a floor."""
    site = site_of(run)
    operation = reading.operation or run.bench
    if reading.kind != "busbw" or operation not in COLLECTIVES:
        raise NoExpectation(f"no band for {operation}", where=f"site {site.name}")
    question = replace(question_of(run, reading), bench=operation)
    try:
        return [*_by_algorithm(run, site, question)]
    except NoExpectation as missing:
        floor = _floor(run, reading, operation, missing)
        if floor is None:
            raise
        return [floor]


def _by_algorithm(run: Run, site: Site, question: Question) -> list[Expectation]:
    """Return the band of the algorithm that ran; of any that may have run if that is not known."""
    if "NCCL_ALGO" in (run.environment or {}):
        return [collective(site, question)]
    algo = run.algorithm(question.bench, question.nbytes or 0)
    return by_algorithm(site, question, algo)


def _floor(
    run: Run, reading: Reading, operation: str, missing: NoExpectation
) -> Expectation | None:
    """Return the least that a large message must reach although no band is known."""
    if (run.nodes or 1) == 1:
        if reading.nbytes < _BY_BANDWIDTH_BYTES:
            return None
        try:
            floor = not_staged(run, reading, operation)
        except NoExpectation:
            return None
        return floor if floor.low < _CLEARLY_BELOW * floor.limit else None
    if operation not in _PUBLISHED or reading.nbytes < 1 << 30 or missing.limit is None:
        return None
    low = _FAR_BELOW * missing.limit
    source = f"floor: {_FAR_BELOW:g} of the links; published healthy runs reach 0.65"
    return Expectation.at_least(
        *(low, missing.limit), path=missing.path, sources=(source,), nbytes=reading.nbytes
    )


def between_two(run: Run, reading: Reading) -> Expectation:
    """A pair by another library than MPI."""
    if (run.nodes or 1) > 1:
        return port(run, reading)
    if run.memory == "host" or reading.buffers == "H H":
        raise NoExpectation("host buffers use no link of the GPUs")
    return not_staged(replace(run, ranks=2), reading, "sendrecv")


def port(run: Run, reading: Reading) -> Expectation:
    """Nothing is known of a port beyond its rate."""
    device = (run.environment or {}).get("UCX_NET_DEVICES", "")
    raise no_band_of_a_port(site_of(run), run.partition, device.partition(":")[0])


def not_staged(run: Run, reading: Reading, operation: str) -> Expectation:
    """Return the least that data reaches which host memory does not carry."""
    site, nodes = site_of(run), run.nodes or 1
    node = site.node_type(run.partition)
    ranks = run.ranks or nodes * (node.gpus.count if node.gpus else 1)
    return above_host_link(
        site,
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        partition=run.partition,
        nbytes=reading.nbytes,
    )
