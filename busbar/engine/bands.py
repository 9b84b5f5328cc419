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
from busbar.expect.split import one_of
from busbar.site.model import Site


def site_of(run: Run) -> Site:
    """Return the site; raise ``NoExpectation`` without one."""
    if run.site is None:
        raise NoExpectation("no site describes the machine")
    return run.site


def no_bands(run: Run, reading: Reading) -> list[Expectation]:
    """Refuse the readings of a tool whose rates do not depend on links."""
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
    question = replace(question_of(run, reading), bench=bench, src=source, dst=target)
    question = replace(question, buffers=reading.buffers or run.buffers or "D D")
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
    """A collective of GPUs."""
    site = site_of(run)
    operation = reading.operation or run.bench
    if reading.kind != "busbw" or operation not in COLLECTIVES:
        raise NoExpectation(f"no band for {operation}", where=f"site {site.name}")
    where, environment = f"site {site.name}", run.environment or {}
    if environment.get("NPKIT_DUMP_DIR"):
        raise NoExpectation("NPKit writes down each event", where=where)
    question = replace(question_of(run, reading), bench=operation)
    if run.placed:
        question = one_of(site, question, run.placed, where)
    elif environment.get("NCCL_TESTS_SPLIT_MASK", "").strip("0x"):
        raise NoExpectation("nothing shows the communicators of the ranks", where=where)
    # The band of the algorithm that ran; of any that may have run if that is not known.
    if "NCCL_ALGO" in environment:
        return [collective(site, question)]
    return by_algorithm(site, question, run.algorithm(operation, reading.nbytes))


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
