# SPDX-License-Identifier: MIT
"""``busbar check`` and ``busbar explain`` give the same verdict, limit and band."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from busbar import site as sites
from busbar.engine.collect import collect, show
from busbar.engine.expectation import expectation_of
from busbar.engine.identify import copies_of, from_output, nodes_of, ranks_of, recognise_site
from busbar.engine.judge import judge
from busbar.engine.launch import BenchLaunch, LaunchOutput
from busbar.engine.run import Run
from busbar.errors import BusbarError
from busbar.expect import COLLECTIVES
from busbar.expect.bounds import factor
from busbar.explain import Source, explain
from busbar.explain.core import explain_output
from busbar.explain.rulebook import PATTERNS
from busbar.site.model import Site
from tests.cases import cases, some

from ..explain.test_labels import DATA, LABELS, neutral
from ..reframe.conftest import bands_found_once  # noqa: F401 - a fixture
from ..reframe.faults import H200
from ..reframe.kinds import KINDS

GIB = 1 << 30
SITES = [sites.load(name) for name in sites.names() if name != "local"]
PLACES = [
    (site, partition.name)
    for site in SITES
    for partition in site.partitions
    if (gpus := site.node_type(partition.name).gpus) and gpus.count > 1
]
Row = tuple[object, ...]


def table(
    site: Site, partition: str, bench: str, rates: dict[int, float], *, ranks: int, nodes: int = 1
) -> str:
    """What nccl-tests or rccl-tests prints, with the devices of a partition."""
    gpus = site.node_type(partition).gpus
    shared = gpus.partitioning.compute_count if gpus.partitioning else 1
    lines = [f"# nThread 1 nGpus 1 minBytes 8 maxBytes {max(rates)} step: 2(factor)"]
    for rank in range(ranks):
        node, place = divmod(rank, ranks // nodes)
        lines.append(
            f"#  Rank {rank:2} Group  0 Pid {1000 + rank} on node{node} device {place:2}"
            f" [0000:{place // shared:02x}:00] {gpus.model}"
        )
    lines.append(f"# Collective test starting: {bench}_perf")
    redop = "sum" if "reduce" in bench else "none"
    root = 0 if bench == "broadcast" else -1
    parts = 1 if bench in ("all_reduce", "broadcast", "sendrecv") else ranks
    for size, busbw in rates.items():
        algbw = busbw / factor(bench, ranks)
        half = f"{size / algbw / 1e3:.1f} {algbw:.4f} {busbw:.4f} 0"
        lines.append(f"{size} {size // 4 // parts} float {redop} {root} {half} {half}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", ""])


def torch(bench: str, ranks: int, rates: dict[int, float]) -> str:
    """What our program that measures PyTorch prints."""
    start = '{"event": "start", "program": "torch_collectives", "version": "1.0",'
    start += f' "backend": "cuda", "ranks": {ranks}, "asked_ranks": {ranks}}}'
    rows = [
        f'{{"event": "reading", "metric": "busbw", "operation": "{bench}", "bytes": {size},'
        f' "gb_per_s": {rate:.2f}, "wrong": 0}}'
        for size, rate in rates.items()
    ]
    return "\n".join([start, *rows, '{"event": "end", "wrong": 0}', ""])


def osu(bench: str, rates: dict[int, float]) -> str:
    """What an OSU test of GPU buffers prints; GB/s are MB/s there."""
    rows = [f"{size} {rate * 1e3:.2f}" for size, rate in rates.items()]
    return "\n".join(["# OSU MPI-CUDA Bandwidth Test v7.4", "# Size  Bandwidth (MB/s)", *rows, ""])


def by_check(run: Run, launch: BenchLaunch, text: str) -> list[Row]:
    """The readings as a check judges them."""
    shown = show("job", text.splitlines())
    return [
        (r.bytes, r.value, r.verdict, r.limit, r.low, r.high)
        for r in judge("check", run, launch, shown).results
        if r.value is not None
    ]


def by_explain(run: Run, text: str) -> list[Row]:
    """The readings as an explanation judges them."""
    (found,) = explain([Source.from_text("job", text)], known=run)
    return [
        (
            *(each.reading.nbytes, each.reading.value, each.verdict, each.limit),
            each.expectation and each.expectation.low,
            each.expectation and each.expectation.high,
        )
        for each in found.judged
    ]


def test_a_table_of_rccl_tests_has_the_band_of_rccl_tests() -> None:
    site = sites.load("mi300x")
    text = table(site, "spx", "all_reduce", {GIB: 250.0}, ranks=8)
    launch = BenchLaunch("all_reduce", (), 8, (GIB,), placed=False)
    known = Run(site=site, partition="spx", harness="rccl-tests", environment={})
    rows = by_explain(Run(site=site), text)
    assert rows == by_check(known, launch, text)
    assert [str(row[2]) for row in rows] == ["degraded", "degraded"]
    assert rows[0][4:] == pytest.approx((292.6, 343.5), abs=0.1)


def test_a_run_of_pytorch_has_the_band_of_pytorch() -> None:
    text = torch("all_reduce", 4, {GIB: 315.0})
    launch = BenchLaunch("torch_collectives", (), 4, (GIB,), placed=False)
    rows = by_explain(Run(site=H200.site), text)
    assert rows == by_check(replace(H200, harness="pytorch"), launch, text)
    assert str(rows[0][2]) == "pass"
    assert rows[0][4] == pytest.approx(308.2, abs=0.1)


def test_a_pair_of_an_unknown_partition_has_the_limit_of_the_fastest() -> None:
    site = sites.load("mi300x")
    text = osu("osu_bw", {1 << 24: 200.0})
    launch = BenchLaunch("osu_bw", (), 2, (1 << 24,), (0, 1), placed=False)
    rows = by_explain(Run(site=site), text)
    assert rows == by_check(Run(site=site, partition="cpx", environment={}), launch, text)
    assert [(str(row[2]), row[3], row[4]) for row in rows] == [("unjudged", 2150, None)]


# What ucx_perftest and fabtests print is read by the check alone.
@cases("name", [n for n in KINDS if not n.startswith("fabric_")])
def test_the_record_of_each_check(name: str) -> None:
    kind = KINDS[name]
    expected = by_check(kind.run, kind.launch, kind.text)
    assert expected
    assert by_explain(kind.run, f"{kind.launch.traced(())}\n{kind.text}") == expected


def test_the_record_of_our_own_program(data: Path) -> None:
    for path in sorted((data / "h200x4").glob("gpu_aware_*healthy.log")):
        known = replace(H200, bench="gpu_aware")
        expect = expectation_of(known)
        explained = explain([Source.from_path(path)], known=H200)[0].judged
        assert explained
        for each in explained:
            band = expect(each.reading)
            assert each.expectation == band


@given(data=st.data())
def test_generated_readings_of_every_site_and_collective(data: st.DataObject) -> None:
    site, partition = data.draw(st.sampled_from(PLACES))
    gpus = site.node_type(partition).gpus
    bench = data.draw(st.sampled_from(COLLECTIVES))
    per_node = data.draw(st.sampled_from(sorted({2, 4, gpus.count} & set(range(gpus.count + 1)))))
    most = next(p.nodes for p in site.partitions if p.name == partition)
    nodes = data.draw(st.integers(1, min(most, 2)))
    ranks = nodes * per_node
    sizes = data.draw(st.lists(st.integers(3, 34), min_size=1, max_size=5, unique=True))
    rates = {1 << bits: data.draw(st.floats(0.01, 3000)) for bits in sorted(sizes)}
    harness = data.draw(st.sampled_from(["tests", "pytorch"]))
    if harness == "pytorch":
        text, program = torch(bench, ranks, rates), "torch_collectives"
    else:
        text, program = table(site, partition, bench, rates, ranks=ranks, nodes=nodes), bench
        harness = "rccl-tests" if gpus.vendor == "amd" else "nccl-tests"
    launch = BenchLaunch(program, (), ranks, tuple(rates), nodes=nodes, placed=False)
    # What no line of a table tells.
    known = Run(site=site, partition=partition, lane="ucx-1.14", environment={}, nodes=nodes)
    try:
        expected = by_check(replace(known, harness=harness), launch, text)
    except BusbarError:
        return
    assert by_explain(known, text) == expected
    # Whoever knows less accuses less.
    for mine, theirs in zip(by_explain(Run(site=site), text), expected, strict=True):
        assert mine[2].severity <= theirs[2].severity or not mine[2].is_problem


def test_every_recorded_run_is_judged_alike() -> None:
    """A check of the same launch makes of each reading what the explanation makes of it."""
    compared = 0
    for label in some(LABELS, 3):
        source = neutral(DATA / label["file"])
        outputs = collect([source], PATTERNS)
        output = outputs[0]
        nodes, ranks = nodes_of(output) or 1, ranks_of(output)
        site = sites.load(label["site"]) if "site" in label else recognise_site(output, nodes)
        if len(outputs) > 1 or not (site and ranks and output.readings) or copies_of(output):
            continue
        known = Run(
            site=site, partition=site.partitions[0].name, nodes=nodes, ranks=ranks, environment={}
        )
        found = explain_output(output, known, asked={})
        run = from_output(known, output, found.operation)
        launch = BenchLaunch(
            *(run.bench, (), ranks, (), tuple(run.gpu(rank) for rank in range(ranks))),
            nodes=nodes,
            buffers=run.buffers or ("H H" if run.memory == "host" else ""),
            environment=tuple((run.environment or {}).items()),
            placed=False,
        )
        check = replace(known, harness=run.harness, lane=run.lane, engine=run.engine)
        rows = judge("check", check, launch, LaunchOutput(output)).results
        assert [(r.value, r.verdict, r.limit, r.low) for r in rows if r.value is not None] == [
            (j.reading.value, j.verdict, j.limit, j.expectation and j.expectation.low)
            for j in found.judged
        ], label["file"]
        compared += 1
    assert compared > 20
