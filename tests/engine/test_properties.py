# SPDX-License-Identifier: MIT
"""What holds for every reading: the judge is monotone, and no two bands contradict each other."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from busbar import site as sites
from busbar.engine.busy import loads
from busbar.engine.collect import collect
from busbar.engine.expectation import expectation_of
from busbar.engine.judge import OutputJudgement, judge_output
from busbar.engine.reading import Kind, Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import Judged, judge_reading
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES, Question, expect
from busbar.expect.collective import bands as measured_bands
from busbar.expect.expectation import Expectation
from busbar.parse.events import Copy, Flag
from busbar.parse.text import Source
from busbar.site.family import Band, LinkClass
from busbar.site.load import link_classes
from busbar.site.model import Site
from busbar.site.tuning import environment, lanes, profiles
from busbar.tools.osu.bands import OSU_COLLECTIVES
from busbar.verdict import Verdict

COLLECTIVE, POINT = sys.modules["busbar.expect.collective"], sys.modules["busbar.expect.point"]
SITES = {name: sites.load(name) for name in sites.names()}
PLACES = [(site, partition.name) for site in SITES.values() for partition in site.partitions]
PAIRS = ("osu_bw", "osu_bibw", "osu_latency", "gpu_aware", "memory", "osu_xccl_bw", "ucx_perftest")
BENCHES = (*PAIRS, "osu_mbw_mr", *OSU_COLLECTIVES, *COLLECTIVES, "torch_collectives", "fi_rma_bw")
UNLIKE = {
    (site.family, node.gpus, node.nics, tuple(lanes(site)), str(site.tuning)): (site, name)
    for site, name in PLACES
    for node in [site.node_type(name)]
}.values()
"""One partition of those with the same links, whose bands are the same."""
COPIES = (Copy(0, 1, 1 << 20, "memcpy", 50.0), Flag(0, 1, 0.1))


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A launch on a shipped site; whatever a log need not show may be unknown."""
    site, partition = draw(st.sampled_from(PLACES))
    gpus = site.node_type(partition).gpus
    nodes = draw(st.sampled_from([1, 2]))
    per_node = draw(st.sampled_from(sorted({1, 2, 4, gpus.count if gpus else 2})))
    profile = draw(st.sampled_from([None, *profiles(site)]))
    lane = draw(st.sampled_from([None, *lanes(site)]))
    run = Run(
        site=site,
        partition=partition,
        bench=draw(st.sampled_from(BENCHES)),
        harness=draw(st.sampled_from(["nccl-tests", "rccl-tests", "pytorch"])),
        nodes=nodes,
        ranks=nodes * per_node,
        lane=lane,
        environment=environment(site, lane=lane, profile=profile, gpus=per_node),
        buffers=draw(st.sampled_from(["D D", "H D", "D H", "H H"])),
        memory=draw(st.sampled_from(["", "device", "host"])),
        copies=draw(st.sampled_from([None, COPIES])) if not gpus else None,
    )
    unknown = draw(st.sets(st.sampled_from(["harness", "ranks", "environment", "lane"])))
    return replace(run, **dict.fromkeys(unknown, None))


@st.composite
def readings(draw: st.DrawFn, run: Run) -> Reading:
    """A reading that such a run can print."""
    kind: Kind = "bw"
    if run.bench in (*COLLECTIVES, "torch_collectives"):
        kind = "busbw"
    elif run.bench in OSU_COLLECTIVES or run.bench == "osu_latency":
        kind = "latency_us"
    elif run.bench == "gpu_aware":
        kind = draw(st.sampled_from(["bw", "latency_us"]))
    operation = OSU_COLLECTIVES.get(run.bench, "")
    if run.bench == "torch_collectives":
        operation = draw(st.sampled_from(COLLECTIVES))
    if operation and draw(st.booleans()):
        kind = "busbw"
    source, target = draw(st.sampled_from([(None, None), (0, 1), (1, 0), (0, 0)]))
    return Reading(
        kind,
        1 << draw(st.integers(0, 34)),
        draw(st.floats(1e-3, 1e4)),
        source=source if run.bench in PAIRS else None,
        target=target if run.bench in PAIRS else None,
        operation=operation,
        memory_gb_per_s=draw(st.sampled_from([None, 3352.0])),
        driver_us=draw(st.sampled_from([None, 1.0, 5.0])),
    )


def of_interest(each: Judged) -> Iterator[float]:
    """Values on both sides of what the reading was compared with."""
    band = each.expectation
    for bound in (each.limit, band and band.low, band and band.typical, band and band.high):
        if bound and math.isfinite(bound):
            yield from (0.3 * bound, 0.999 * bound, bound, 1.001 * bound)


def ordered(reading: Reading, values: set[float]) -> list[Reading]:
    """The same reading with these values, the worst first."""
    latency = reading.kind == "latency_us"
    return [replace(reading, value=value) for value in sorted(values, reverse=latency)]


@given(data=st.data())
def test_a_better_reading_never_gets_a_worse_verdict(data: st.DataObject) -> None:
    run = data.draw(runs())
    reading = data.draw(readings(run))
    expect = expectation_of(run)
    values = {reading.value, *of_interest(judge_reading(reading, expect))}
    values |= {
        v
        for value in list(values)
        for v in of_interest(judge_reading(replace(reading, value=value), expect))
    }
    judged = [judge_reading(each, expect) for each in ordered(reading, values)]
    for worse, better in combinations(judged, 2):
        if better.verdict is not Verdict.IMPOSSIBLE:
            assert better.verdict.severity <= worse.verdict.severity, (worse, better)


RECORD = {
    "event": "busy", "host": "n1", "seconds": 20.0, "cpus": 4, "own": 2.0, "others": 0.0,
    "node_cpus": 4, "node_others": 0.0, "wait": 0.0, "waiting": 0.0, "processes": [],
}  # fmt: skip


def below_larger(judgement: OutputJudgement) -> set[tuple[int, float]]:
    """The sizes that took longer than larger ones, each with what it was compared with."""
    slow = (each for each in judgement.judged if "took less time" in each.why)
    return {(each.reading.nbytes, each.expectation.low) for each in slow if each.expectation}


@given(data=st.data())
def test_a_better_reading_never_makes_a_run_worse(data: st.DataObject) -> None:
    """Beside any load, with any other readings; a dip compares readings with each other, and a
    better reading can deepen it, as it can show that smaller messages are slow, or slower."""
    run = data.draw(runs())
    first = data.draw(readings(run))
    sizes = data.draw(st.lists(st.integers(20, 34), min_size=1, max_size=4, unique=True))
    others = [
        replace(first, nbytes=1 << size, value=data.draw(st.floats(1e-2, 1e3))) for size in sizes
    ]
    place = data.draw(st.integers(0, len(others) - 1))
    load = {name: data.draw(st.floats(0, 4)) for name in ("others", "node_others", "waiting")}
    (facts,) = collect([Source.from_text("job.out", json.dumps(RECORD | load) + "\n")])
    expect = expectation_of(run)
    values = {others[place].value, *of_interest(judge_reading(others[place], expect))}
    judgements = [
        judge_output(run, [*others[:place], each, *others[place + 1 :]], loads(facts, run))
        for each in ordered(others[place], values)
        if judge_reading(each, expect).verdict is not Verdict.IMPOSSIBLE
    ]
    for worse, better in combinations(judgements, 2):
        more_slow = below_larger(better) - below_larger(worse)
        if not more_slow and (worse.dips == better.dips or not better.dips):
            before, after = (
                each.verdict(None, (), explained=False).severity for each in (worse, better)
            )
            assert after <= before, (worse, better)


@given(data=st.data())
def test_a_pass_needs_a_comparison(data: st.DataObject) -> None:
    run = data.draw(runs())
    found = data.draw(st.lists(readings(run), max_size=4))
    judgement = judge_output(run, found)
    for each in judgement.judged:
        if each.verdict is Verdict.PASS:
            assert each.expectation is not None
            assert not each.expectation.floor
    verdict = judgement.verdict(None, (), explained=False)
    if not any(each.verdict is Verdict.PASS for each in judgement.judged):
        assert verdict is not Verdict.PASS


def sizes_of(bands: Sequence[Band]) -> list[int]:
    """The ends of all bands and what lies between: two that contradict each other do it there."""
    ends = sorted({end for band in bands for end in band.bytes})
    return sorted({*ends, *(math.isqrt(a * b) for a, b in pairwise(ends))})


def settings_of(site: Site) -> list[dict[str, str]]:
    """What a run on a site may have set of the variables that bands ask for."""
    conditions = [band.when for band in measured_bands(site)]
    asked = {name for when in conditions for name in when}
    of_profiles = [
        environment(site, lane=lane, profile=profile)
        for lane in (None, *lanes(site))
        for profile in (None, *profiles(site))
    ]
    known = [
        {name: value for name, value in each.items() if name in asked}
        for each in ({}, *conditions, *of_profiles)
    ]
    return [each for i, each in enumerate(known) if each not in known[:i]]


def found(site: Site, question: Question) -> list[Expectation]:
    """The band of a question, if there is one; in order, and within its limit."""
    try:
        band = expect(site, question)
    except BusbarError:
        return []
    if band.unit == "us":
        assert band.limit <= band.low <= band.typical <= band.high
    else:
        assert 0 < band.low <= band.typical <= band.high <= band.limit
    return [band]


def overlap(bands: list[Expectation]) -> bool:
    """Whether some reading is inside every one of them."""
    return not bands or max(b.low for b in bands) <= min(b.high for b in bands)


def bands_alone(
    site: Site, question: Question, bands: Iterable[Band], narrowed: Callable[[Band], None]
) -> list[Expectation]:
    """What each band gives if ``narrowed`` has made it the only one."""
    expectations = []
    for band in bands:
        if band.covers(question.nbytes):
            narrowed(band)
            expectations += found(site, question)
    return expectations


def test_no_two_bands_of_a_collective_contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for site, partition in UNLIKE:
        found = COLLECTIVE.bands(site)
        monkeypatch.setattr(COLLECTIVE, "_of_model", lambda _: [])
        candidates = COLLECTIVE._candidates

        def alone(band: Band, candidates: Any = candidates) -> None:
            def only(setting: Any) -> list[Band]:
                return [each for each in candidates(setting) if each == band]

            monkeypatch.setattr(COLLECTIVE, "_candidates", only)

        runs = {
            (band.collective, band.harness, getattr(band, "nodes", 1), ranks)
            for band in found
            for ranks in band.ranks_per_node
        }
        for (bench, harness, nodes, ranks), run in product(sorted(runs), settings_of(site)):
            same = [b for b in found if (b.collective, getattr(b, "nodes", 1)) == (bench, nodes)]
            for nbytes in sizes_of(same):
                question = Question(bench, nbytes, nodes, nodes * ranks, partition=partition)
                question = replace(question, harness=harness, environment=run)
                bands = bands_alone(site, question, same, alone)
                # Of several algorithms the first that is listed judges: it must be the fastest.
                assert all(bands[0].high >= band.low for band in bands), (question, bands)
                for algo in {band.algo for band in same}:
                    of_algo = [band for band in same if band.algo == algo]
                    assert overlap(bands_alone(site, question, of_algo, alone)), question
                compared += len(bands)
        monkeypatch.undo()
    assert compared > 400


def unlike_ends(site: Site, partition: str) -> list[int]:
    """The GPUs that GPU 0 is joined with, one of those that have the same ways and limits."""
    gpus = site.node_type(partition).gpus
    ways: dict[tuple[object, ...], int] = {}
    for end in range(1, min(gpus.count, 9)) if gpus else ():
        question = Question("", 1 << 24, src=0, dst=end, partition=partition)
        answers: list[object] = []
        for bench, nodes, buffers in product(POINT.BENCHES, (1, 2), ("D D", "H D", "D H")):
            asked = replace(question, bench=bench, nodes=nodes, buffers=buffers)
            try:
                answer: Any = expect(site, asked)
            except BusbarError as error:
                answer = error
            links = [hop.partition(": ")[2] for hop in getattr(answer, "path", ())]
            answers += [getattr(answer, "limit", None), *links]
        ways.setdefault(tuple(answers), end)
    return [*ways.values()]


def test_no_two_bands_of_a_link_contradict(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for site, partition in UNLIKE:
        classes = link_classes(site)
        node = site.node_type(partition)
        gpus, used = node.gpus, {nic.link_class for nic in node.nics}
        used |= gpus.links.classes() if gpus and gpus.links else set()
        used |= {gpus.host_link.link_class} if gpus and gpus.host_link else set()
        unlike = unlike_ends(site, partition)
        for name, link in classes.items():

            def alone(
                band: Band,
                name: str = name,
                link: LinkClass = link,
                known: dict[str, LinkClass] = classes,
            ) -> None:
                # The others may choose the path, and say which engines there are.
                rest = tuple(b for b in link.bands if b.bench != band.bench)
                one = known | {name: link.model_copy(update={"bands": (*rest, band)})}
                monkeypatch.setattr(POINT, "link_classes", lambda _: one)

            ends = unlike if name in used else []
            for end, nodes, lane, bench in product(
                ends, (1, 2), (None, *lanes(site)), ("osu_bw", "osu_bibw", "osu_latency")
            ):
                same = [band for band in link.bands if band.bench == bench]
                for nbytes, buffers in product(sizes_of(same), ("D D", "H D", "D H")):
                    question = Question(bench, nbytes, nodes, src=0, dst=end, buffers=buffers)
                    question = replace(question, lane=lane, partition=partition)
                    bands = bands_alone(site, question, same, alone)
                    assert overlap(bands), (site.name, question, bands)
                    compared += len(bands)
    assert compared > 100


def test_a_slow_size_among_many_without_a_band_is_no_pass() -> None:
    """It is treated as noise, but nothing else was compared."""
    run = Run(SITES["h200x4"], "gpu", bench="all_reduce", harness="nccl-tests", nodes=1, ranks=4)
    rows = [Reading("busbw", 1 << 30, 200.0), Reading("busbw", 1 << 40, 210.0)]
    judgement = judge_output(run, rows)
    assert [str(each.verdict) for each in judgement.judged] == ["degraded", "unjudged"]
    assert judgement.verdict(None, (), explained=False) is Verdict.UNJUDGED


def test_several_pairs_of_unknown_buffers_are_not_accused() -> None:
    run = Run(SITES["h200x4"], "gpu", bench="osu_mbw_mr", nodes=1, ranks=4, lane="ucx-1.14")
    known = replace(run, memory="device")
    low = expectation_of(known)(Reading("bw", 1 << 24, 1.0)).low
    for share, unknown, on_gpus in (
        (0.3, "unjudged", "degraded"),
        (0.9, "unjudged", "degraded"),
        (1.01, "pass", "pass"),
    ):
        reading = Reading("bw", 1 << 24, share * low)
        assert judge_reading(reading, expectation_of(run)).verdict == unknown
        assert judge_reading(reading, expectation_of(known)).verdict == on_gpus
