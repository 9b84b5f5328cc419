# SPDX-License-Identifier: MIT
"""The limit and band of a reading, from what is known of its run.

This is the only place that chooses an expectation. What is not known of a run matches any band,
and the band that speaks best for the reading counts: nothing is accused by a band of another
partition, lane or environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from busbar import site as sites
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.series import calibrated
from busbar.engine.verdicts import Expect, verdict_on
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES, NoExpectation, Question, collective, point_to_point
from busbar.expect.banded import BandedExpectation
from busbar.expect.bounds import factor
from busbar.expect.collective import bands as collective_bands
from busbar.expect.collective import by_algorithm
from busbar.expect.expectation import Expectation
from busbar.expect.host_link import expectation as host_link
from busbar.expect.measured import expectation as measured
from busbar.expect.point import multi_pair
from busbar.expect.port import no_band_of_a_port
from busbar.expect.unstaged import expectation as unstaged
from busbar.expect.within_gpu import expectation as within_gpu
from busbar.site.model import Site

OSU_COLLECTIVES = {
    "osu_allreduce": "all_reduce",
    "osu_allgather": "all_gather",
    "osu_alltoall": "alltoall",
    "osu_bcast": "broadcast",
    "osu_reduce_scatter": "reduce_scatter",
}
_PARTS = ("osu_allgather", "osu_alltoall")
"""OSU prints the size of one rank's part for these, and the whole for the others."""
_BY_BANDWIDTH_BYTES = 1 << 28
"""From this size on a collective takes its time by bandwidth, not by latency."""
_FAR_BELOW = 0.4
_PUBLISHED = ("all_reduce", "all_gather", "reduce_scatter")
"""The collectives of which healthy runs between nodes were published."""
_CLEARLY_BELOW = 0.5
"""No run comes near the limit, so a floor close to it would condemn healthy runs."""


def expectation_of(run: Run) -> Expect:
    """Return the function that gives the limit and band of each reading of ``run``.

    It raises ``NoExpectation`` if no band is known.
    """
    known: dict[tuple[object, ...], list[Expectation | BusbarError]] = {}

    def expect(reading: Reading) -> Expectation:
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
    best = min(bands, key=lambda band: verdict_on(band, reading.value).severity, default=None)
    if best and not (missing and verdict_on(best, reading.value).is_problem):
        return best
    # Of several limits the largest holds.
    missing_band = max(missing, key=lambda each: getattr(each, "limit", None) or 0.0)
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
    try:
        if run.bench in (*COLLECTIVES, "torch_collectives"):
            return [*_collective(run, reading)]
        return [_EXPECTATIONS.get(run.bench, _of_another_tool)(run, reading)]
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
    if run.bench in (*COLLECTIVES, "torch_collectives"):
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


def _pair(run: Run, reading: Reading) -> Expectation:
    """Point to point: OSU, and our own programs, which measure the same."""
    site = _site(run)
    if run.memory == "host":
        raise NoExpectation("host buffers use no GPU link", where=f"site {site.name}")
    bench, source, target = run.bench, run.gpu(0), run.gpu(1)
    if reading.source is not None and reading.target is not None:
        bench = "osu_latency" if reading.kind == "latency_us" else "osu_bw"
        source, target = run.gpu(reading.source), run.gpu(reading.target)
    question = replace(
        _question(run, reading),
        bench=bench,
        src=source,
        dst=target,
        buffers=reading.buffers or run.buffers or "D D",
    )
    if bench == "osu_bw" and question.buffers in ("H D", "D H") and question.nodes == 1:
        return host_link(site, question)
    question = replace(question, engine=run.engine, driver_us=reading.driver_us)
    return point_to_point(site, question)


def _question(run: Run, reading: Reading) -> Question:
    return Question(
        nbytes=reading.nbytes,
        nodes=run.nodes or 1,
        ranks=run.ranks,
        harness=run.harness,
        lane=run.lane,
        environment=run.environment,
        partition=run.partition,
    )


def _gpu_aware(run: Run, reading: Reading) -> Expectation:
    """A pair of ranks: a copy that was measured in the same run, or the links of the GPUs."""
    if reading.buffers == "H H" and (run.nodes or 1) > 1 and not run.copies:
        raise NoExpectation("no band is known for host memory of two nodes")
    if run.copies is None:
        return _pair(run, reading)
    return measured(
        run.copies,
        latency=reading.kind == "latency_us",
        source=reading.source,
        target=reading.target,
        nbytes=reading.nbytes,
    )


def _memory(run: Run, reading: Reading) -> Expectation:
    """A plain copy: between two GPUs, between a GPU and the host, or within one memory."""
    if reading.source is not None and reading.source != reading.target:
        return _pair(run, reading)
    if reading.buffers in ("H D", "D H"):
        gpu = reading.source or 0
        question = replace(_question(run, reading), bench="copy", src=gpu, dst=gpu)
        return host_link(_site(run), replace(question, buffers=reading.buffers))
    if reading.buffers == "D" and reading.memory_gb_per_s:
        gpus = _site(run).node_type(run.partition).gpus
        return within_gpu(gpus.model if gpus else "", reading.memory_gb_per_s, reading.nbytes)
    raise NoExpectation("a copy within host memory uses no link")


def _multi_pair(run: Run, reading: Reading) -> Expectation:
    band = multi_pair(_site(run), _question(run, reading))
    # OSU prints the same title for buffers of the host, which are slower.
    if not run.memory and reading.value < band.low:
        where = f"site {_site(run).name}"
        raise NoExpectation("the output does not show where the buffers are", where=where)
    return band


def _collective(run: Run, reading: Reading) -> list[Expectation]:
    """A collective of NCCL or RCCL; of a large message without a band, a floor."""
    site = _site(run)
    operation = reading.operation or run.bench
    if reading.kind != "busbw" or operation not in COLLECTIVES:
        raise NoExpectation(f"no band for {operation}", where=f"site {site.name}")
    question = replace(_question(run, reading), bench=operation)
    try:
        return [*_by_algorithm(run, site, question)]
    except NoExpectation as missing:
        floor = _floor(run, reading, operation, missing)
        if floor is None:
            raise
        return [floor]


def _by_algorithm(run: Run, site: Site, question: Question) -> list[BandedExpectation]:
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
            floor = _not_staged(run, reading, operation)
        except NoExpectation:
            return None
        return floor if floor.low < _CLEARLY_BELOW * floor.limit else None
    if operation not in _PUBLISHED or reading.nbytes < 1 << 30 or missing.limit is None:
        return None
    low = _FAR_BELOW * missing.limit
    source = f"floor: {_FAR_BELOW:g} of the links; published healthy runs reach 0.65"
    return Expectation(
        *(missing.limit, low, low, missing.limit),
        path=missing.path,
        sources=(source,),
        nbytes=reading.nbytes,
        floor=True,
    )


def _osu_collective(run: Run, reading: Reading) -> Expectation:
    if run.memory == "host":
        raise NoExpectation("host buffers use no link of the GPUs")
    if reading.kind == "latency_us":
        raise NoExpectation("a latency of a collective has no band; its bus bandwidth has")
    return _not_staged(run, reading, reading.operation)


def _between_two(run: Run, reading: Reading) -> Expectation:
    """A pair by another library than MPI."""
    if (run.nodes or 1) > 1:
        return _port(run, reading)
    if run.memory == "host" or reading.buffers == "H H":
        raise NoExpectation("host buffers use no link of the GPUs")
    return _not_staged(replace(run, ranks=2), reading, "sendrecv")


def _port(run: Run, reading: Reading) -> Expectation:
    device = (run.environment or {}).get("UCX_NET_DEVICES", "")
    raise no_band_of_a_port(_site(run), run.partition, device.partition(":")[0])


def _not_staged(run: Run, reading: Reading, operation: str) -> Expectation:
    site, nodes = _site(run), run.nodes or 1
    node = site.node_type(run.partition)
    ranks = run.ranks or nodes * (node.gpus.count if node.gpus else 1)
    return unstaged(
        site,
        operation=operation,
        ranks=ranks,
        nodes=nodes,
        partition=run.partition,
        nbytes=reading.nbytes,
    )


def _of_another_tool(run: Run, reading: Reading) -> Expectation:
    where = f"site {run.site.name}" if run.site else ""
    raise NoExpectation(f"no band for {run.bench or 'this tool'}", where=where)


def _site(run: Run) -> Site:
    if run.site is None:
        raise NoExpectation("no site describes the machine")
    return run.site


_EXPECTATIONS: dict[str, Callable[[Run, Reading], Expectation]] = {
    **dict.fromkeys(("osu_bw", "osu_bibw", "osu_latency"), _pair),
    "osu_mbw_mr": _multi_pair,
    "osu_xccl_bw": _between_two,
    "ucx_perftest": _between_two,
    **dict.fromkeys(("fi_pingpong", "fi_rma_bw"), _port),
    "gpu_aware": _gpu_aware,
    "memory": _memory,
    **dict.fromkeys(OSU_COLLECTIVES, _osu_collective),
    **dict.fromkeys(
        (name.replace("osu_", "osu_xccl_") for name in OSU_COLLECTIVES), _osu_collective
    ),
}
"""By the program; collectives of NCCL and RCCL have one for each algorithm."""


def bus_bandwidths(bench: str, readings: list[Reading], ranks: int | None) -> list[Reading]:
    """Return the bus bandwidth that a collective of OSU reaches at its largest size.

    OSU prints latencies; the size over the time, times the factor of nccl-tests, compares.
    """
    operation = OSU_COLLECTIVES.get(bench.replace("osu_xccl_", "osu_"))
    latencies = [each for each in readings if each.kind == "latency_us" and each.value > 0]
    if operation is None or not ranks or not latencies:
        return []
    last = max(latencies, key=lambda each: each.nbytes)
    parts = ranks if bench.replace("osu_xccl_", "osu_") in _PARTS else 1
    rate = last.gb_per_s * parts * factor(operation, ranks)
    return [replace(last, kind="busbw", value=rate, operation=operation)]


def engine_band(run: Run, nbytes: int, engine: str) -> Expectation | None:
    """Return the band of the run's first pair for a copy engine; None if there is none."""
    if run.site is None:
        return None
    question = Question(
        bench="osu_bw",
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
