# SPDX-License-Identifier: MIT
"""Readings against what was expected of them, or against what the output itself tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from busbar.errors import BusbarError
from busbar.expect import (
    COLLECTIVES,
    NoExpectation,
    collective,
    measured,
    multi_pair,
    point_to_point,
)
from busbar.expect.expectation import Expectation
from busbar.explain.rules import Judged
from busbar.judge.verdicts import verdict_on
from busbar.output.job_output import JobOutput
from busbar.output.reading import Reading
from busbar.parse import gpu_aware
from busbar.site.model import Site
from busbar.verdict import Verdict

Expect = Callable[[Reading], Expectation]
_BENCHES = {"osu_bw", "osu_bibw", "osu_latency"}
_VISIBLE = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def from_site(
    site: Site,
    facts: JobOutput,
    *,
    engine: str | None,
    operation: str | None,
    ranks: int | None,
    nodes: int | None,
) -> Expect:
    """The expectation of ``site`` for each reading of the run.

    It raises ``NoExpectation`` where the site has no band for a reading.
    """
    pair = visible_pair(facts)
    # Without a line of UCX about its settings they are unknown, and the site's own stand for them.
    environment = None
    if facts.first("ucx.env"):
        environment = {name: list(values)[-1] for name, values in facts.environment.items()}
    lane = _lane(facts)

    def expect(reading: Reading) -> Expectation:
        if facts.device == "host":
            raise NoExpectation("host buffers use no GPU link", where=f"site {site.name}")
        bench = facts.tool
        source, target = pair
        if bench == "gpu_aware":
            bench = "osu_latency" if reading.kind == "latency_us" else "osu_bw"
            source, target = (
                _gpu_of(site, facts, reading.source),
                _gpu_of(site, facts, reading.target),
            )
        if bench in _BENCHES and nodes in (1, None):
            return point_to_point(
                site,
                bench=bench,
                src=source,
                dst=target,
                nbytes=reading.nbytes,
                buffers=reading.buffers or facts.buffers or "D D",
                engine=engine,
                lane=lane,
                environment=environment,
                driver_us=reading.driver_us,
            )
        if bench == "osu_mbw_mr" and nodes in (1, None):
            several = multi_pair(site, nbytes=reading.nbytes, ranks=ranks, lane=lane)
            if not facts.device and reading.value < several.typical / 2:
                where = f"site {site.name}"
                raise NoExpectation("the output does not show where the buffers are", where=where)
            return several
        if reading.kind == "busbw" and (reading.operation or operation) in COLLECTIVES:
            return collective(
                site,
                bench=reading.operation or operation or "",
                nbytes=reading.nbytes,
                nodes=nodes or 1,
                ranks=ranks,
                harness="nccl-tests",  # torch_collectives times the same way and reads the same
            )
        raise NoExpectation(f"no band for {operation or bench}", where=f"site {site.name}")

    return expect


def from_copies(facts: JobOutput) -> Expect | None:
    """The expectation that ``gpu_aware --copy`` measured itself, on a machine that nobody
    knows."""
    lines = [e.text for event, e in facts.events if event.get("event") in ("copy", "flag")]
    if not lines or facts.device != "host":
        return None
    try:
        run = gpu_aware.parse(lines)
    except ValueError:
        return None  # a damaged line: the copies are no measure then, the readings still are facts

    def expect(reading: Reading) -> Expectation:
        metric = "latency" if reading.kind == "latency_us" else "bandwidth"
        if reading.source is None or reading.target is None:
            raise NoExpectation("the reading names no pair")
        return measured.expectation(
            run,
            gpu_aware.Reading(
                metric,
                reading.source,
                reading.target,
                reading.buffers,
                reading.nbytes,
                reading.value,
                0,
            ),
        )

    return expect


def _lane(facts: JobOutput) -> str | None:
    told = facts.first("ucx.api-mismatch")
    version = told.values[1] if told else next(facts.values("ucx.version"), "")
    if not version:
        return None
    return "ucx-1.14" if version.startswith("1.14") else "ucx-current"


def visible_pair(facts: JobOutput) -> tuple[int, int]:
    """The GPUs of rank 0 and 1, as the ``*_VISIBLE_DEVICES`` that the output shows says; else
    0 and 1."""
    setting = facts.setting(*_VISIBLE)
    if setting:
        numbers = [int(n) for n in setting[1].split(",") if n.strip().isdigit()]
        if len(numbers) >= 2:
            return numbers[0], numbers[1]
    return 0, 1


def _gpu_of(site: Site, facts: JobOutput, rank: int | None) -> int:
    gpus = site.node_type().gpus
    known = gpus.bus_ids if gpus and gpus.bus_ids else ()
    for event, _ in facts.events:
        if event.get("event") == "rank" and event.get("rank") == rank:
            device = str(event.get("device"))
            if device in known:
                return known.index(device)
            place = event.get("node_rank")
            return place if isinstance(place, int) else int(rank or 0)
    return int(rank or 0)


@dataclass
class Judgement:
    """What came of judging every reading."""

    judged: list[Judged] = field(default_factory=list)
    bounded: list[tuple[Reading, float]] = field(default_factory=list)
    """Readings without a band, with the limit of their links in GB/s."""
    why: str = ""
    """Why the first of those without a band has none."""


def judge(facts: JobOutput, expect: Expect) -> Judgement:
    """Every reading against its expectation."""
    result = Judgement()
    for reading in facts.readings:
        if reading.kind == "algbw":
            continue
        try:
            expectation = expect(reading)
        except BusbarError as missing:
            # Other errors than a missing band: the site has no such number of nodes or GPUs.
            result.why = result.why or str(missing)
            limit = _limit(reading, missing)
            if limit and reading.value > limit:
                bound = Expectation(limit, 0.0, limit, limit)
                result.judged.append(Judged(reading, bound, Verdict.IMPOSSIBLE))
            elif limit:
                result.bounded.append((reading, limit))
            continue
        verdict = verdict_on(expectation, reading.value)
        result.judged.append(Judged(reading, expectation, verdict))
    return result


def _limit(reading: Reading, missing: BusbarError) -> float | None:
    """The links' limit, which holds where no band is known."""
    if not isinstance(missing, NoExpectation) or missing.unit != "GB/s":
        return None
    return None if reading.kind == "latency_us" else missing.limit


def verdict_of(judged: list[Judged]) -> Verdict:
    """The run's verdict by its readings.

    One low size among many is noise of a shared machine; a series is degraded when its largest
    size is low, or two of its sizes are.
    """
    if any(j.verdict in (Verdict.IMPOSSIBLE, Verdict.FAILED) for j in judged):
        return max((j.verdict for j in judged), key=list(Verdict).index)
    for series in _series(judged):
        low = [j for j in series if j.verdict is Verdict.DEGRADED]
        if len(low) >= 2 or (low and series[-1].verdict is Verdict.DEGRADED):
            return Verdict.DEGRADED
    return Verdict.PASS


def _series(judged: list[Judged]) -> Iterator[list[Judged]]:
    groups: dict[tuple[object, ...], list[Judged]] = defaultdict(list)
    for item in judged:
        r = item.reading
        groups[r.kind, r.source, r.target, r.in_place, r.buffers, r.operation].append(item)
    for group in groups.values():
        yield sorted(group, key=lambda j: j.reading.nbytes)


def engine_band(site: Site, facts: JobOutput, nbytes: int, engine: str) -> Expectation | None:
    """The band of the run's pair for a copy engine; None where the site knows none."""
    source, target = visible_pair(facts)
    try:
        return point_to_point(
            site, bench="osu_bw", src=source, dst=target, nbytes=nbytes, engine=engine
        )
    except BusbarError:
        return None  # the site's links know no such engine, or no data supports a band


def kernel_limit(site: Site, facts: JobOutput, nbytes: int) -> float | None:
    """GB/s that the links of the pair carry when kernels copy; None where the site does not
    say."""
    band = engine_band(site, facts, nbytes, "kernel")
    return band.limit if band else None
