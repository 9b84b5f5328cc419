# SPDX-License-Identifier: MIT
"""The limit and band of a reading, from what is known of its run.

This is the only place that chooses an expectation. What is not known of a run matches any band,
and the most lenient band counts: a band of another partition, lane or environment accuses
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from busbar import site as sites
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.series import calibrated
from busbar.engine.tool import tool_of
from busbar.engine.verdicts import Expect, verdict_on
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, point_to_point
from busbar.expect.collective import bands as collective_bands
from busbar.expect.expectation import Expectation
from busbar.expect.point import BANDWIDTH

_LEAST_US = {False: 0.01, True: 0.1}
"""us that no message stays below: less than a cache line between two cores, and with device memory
or another node less than one transaction over PCIe, NVLink or Infinity Fabric. MPI adds several of
either."""
_BY_PCIE_US = 0.6
"""us that no message between GPUs behind PCIe stays below: source and target are each reached by a
transaction over PCIe, of which none takes less than 0.3 us. 7.7 us is the least that was recorded
on an H200."""

_UNNAMED = (
    "the log does not name its collective: keep the command line, or name the "
    "file after it (all_reduce.log)"
)


def expectation_of(run: Run) -> Expect:
    """Return the function that gives the limit and band of each reading of ``run``.

    It raises ``NoExpectation`` if no band is known.
    """
    far = run.memory == "device" or (run.nodes or 1) > 1
    gpus = [run.site.node_type(name).gpus for name in run.partitions] if run.site else [None]
    links = {each and each.host_link and each.host_link.link_class for each in gpus}
    by_pcie = bool(links) and all(link and link.startswith("pcie") for link in links)
    known: dict[tuple[object, ...], list[Expectation | BusbarError]] = {}

    def expect(reading: Reading) -> Expectation:
        least = _LEAST_US["D" in reading.buffers or (far and reading.buffers != "H H")]
        if by_pcie and (reading.buffers or run.buffers) == "D D":
            least = _BY_PCIE_US
        if reading.kind == "latency_us" and run.ranks != 1 and 0 < reading.value < least:
            raise NoExpectation("no message is as fast", limit=least, unit="us")
        # A matrix of pairs and a table of 100,000 rows ask the same again and again.
        key = (
            *(reading.kind, reading.nbytes, reading.source, reading.target, reading.buffers),
            *(reading.operation, reading.in_place, reading.driver_us, reading.memory_gb_per_s),
            reading.value if not run.memory else None,
        )
        if key not in known:
            known[key] = list(_candidates(run, reading))
        return _most_lenient(known[key], reading)

    return expect


def _most_lenient(found: list[Expectation | BusbarError], reading: Reading) -> Expectation:
    """Return the band by which the reading looks best; the first of several.

    A reading that every band accuses may come from a setting for which none is known.
    """
    bands = [each for each in found if isinstance(each, Expectation)]
    missing = [each for each in found if isinstance(each, BusbarError)]
    best = min(
        bands,
        key=lambda b: (verdict_on(b, reading.value).severity, b.is_exceeded(reading.value)),
        default=None,
    )
    if best and not (missing and verdict_on(best, reading.value).is_problem):
        return best
    # Of several limits the most lenient holds: the largest rate, or the shortest time.
    sign = -1 if reading.kind == "latency_us" else 1
    missing_band = max(missing, key=lambda each: sign * (getattr(each, "limit", None) or 0.0))
    raise missing_band.with_traceback(None)  # it is raised for many readings


def _candidates(run: Run, reading: Reading) -> Iterator[Expectation | BusbarError]:
    """Yield what each setting says that the run may have had, the likeliest first."""
    settings = [run]
    if run.site is not None and not run.copies:
        settings = [
            replace(run, partition=partition, nodes=nodes, environment=environment)
            for partition in run.partitions
            for nodes in _numbers_of_nodes(run, partition)
            for environment in _environments(run)
        ]
    for setting in settings:
        found = _of_model(setting, reading)
        first = found[0]
        model = first.typical if isinstance(first, Expectation) and not first.floor else None
        own = list(calibrated(setting, reading, getattr(first, "limit", None), model))
        yield from own or found


def _of_model(run: Run, reading: Reading) -> list[Expectation | BusbarError]:
    """Return what links and families say: one expectation, or one for each algorithm."""
    tool = tool_of(run.bench)
    try:
        if tool is None:
            where = f"site {run.site.name}" if run.site else ""
            raise NoExpectation(f"no band for {run.bench}" if run.bench else _UNNAMED, where=where)
        return [*tool.bands(run, reading)]
    except BusbarError as error:
        # Other errors than a missing band: the site has no such number of nodes or GPUs.
        return [error]


def _numbers_of_nodes(run: Run, partition: str) -> list[int]:
    if run.nodes is not None or run.site is None:
        return [run.nodes or 1]
    most = next(each.nodes for each in run.site.partitions if each.name == partition)
    return sorted({1, *(count for count in (2, 4, 8) if count <= most), most})


def _environments(run: Run) -> list[dict[str, str] | None]:
    """The environment of the run, and those that it may have had and a band asks for."""
    known = dict(run.environment or {})
    if run.site is None or "" in run.listed:
        return [known]
    tool = tool_of(run.bench)
    if tool and tool.collective:
        conditions = [band.when for band in collective_bands(run.site)]
    else:
        links = sites.link_classes(run.site).values()
        conditions = [band.when for link in links for band in link.bands]
    usual = sites.environment(run.site, lane=run.lane)
    likely = {n: v for n, v in usual.items() if not n.startswith(run.listed)} | known
    found: list[dict[str, str] | None] = [likely if known else None]
    for when in conditions:
        open_ = {n: v for n, v in when.items() if n not in known and not n.startswith(run.listed)}
        if open_ and {**likely, **open_} not in found:
            found.append({**likely, **open_})
    return found


def engine_band(run: Run, nbytes: int, engine: str) -> Expectation | None:
    """Return the band of the run's first pair for a copy engine; None if there is none."""
    if run.site is None:
        return None
    question = Question(
        bench=BANDWIDTH,
        nbytes=nbytes,
        src=run.gpu(0),
        dst=run.gpu(1),
        engine=engine,
        partition=run.partition,
    )
    try:
        return point_to_point(run.site, question)
    except BusbarError:
        return None  # the site's links know no such engine, or no data supports a band


def kernel_limit(run: Run, nbytes: int) -> float | None:
    """Return the GB/s that the links of the pair carry when kernels copy, if the site says so."""
    band = engine_band(run, nbytes, "kernel")
    return band.limit if band else None
