# SPDX-License-Identifier: MIT
"""Judging runs of ``gpu_aware``: recorded on 4 x H200, and small ones made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from busbar import site as sites
from busbar.engine.collect import show
from busbar.engine.expectation import expectation_of
from busbar.engine.judge import judge
from busbar.engine.launch import BenchLaunch
from busbar.engine.reading import Reading
from busbar.engine.results import Outcome, Result
from busbar.engine.run import Run
from busbar.engine.verdicts import verdict_on
from busbar.expect import NoExpectation
from busbar.expect.expectation import Expectation
from busbar.expect.measured import beside_plain_copies
from busbar.parse.events import Event, parse
from busbar.tools.gpu_aware.answer import GpuAwareOptions, options_of
from busbar.verdict import Verdict, worst
from tests.cases import cases

H200 = BenchLaunch(
    "gpu_aware",
    ("gpu_aware", "--buffers=DD", "--sizes=4M,16M,256M", "--latency-sizes=8"),
    *(4, ()),
    transports=("cuda_ipc",),
    mixed=True,
    end=True,
)


def recorded(data: Path, name: str) -> list[str]:
    path = data / "h200x4" / f"gpu_aware_{name}.log"
    return path.read_text(errors="backslashreplace").splitlines()


def judged(
    lines: list[str], asked: BenchLaunch = H200, *, lane: str = "ucx-1.14", status: int = 0
) -> list[Result]:
    run = Run(site=sites.load("h200x4"), lane=lane, environment={})
    shown = show("record", [*lines, f"exit_status={status}"])
    return judge("link_matrix", run, asked, shown).results


def asking(*options: str) -> BenchLaunch:
    return replace(H200, command=("gpu_aware", "--buffers=DD", *options))


def verdict(results: list[Result]) -> Verdict:
    return worst(result.verdict for result in results)


def test_healthy_h200_passes_with_every_pair(data):
    results = judged(recorded(data, "healthy"))
    assert verdict(results) is Verdict.PASS
    assert len(results) == 12 * 4
    # Within 2 % of osu_bw in tests/data/h200x4/osu_bw_healthy_a.log.
    for nbytes, osu_bw in ((16 << 20, 358.54), (256 << 20, 394.16)):
        at = [result.gb_per_s for result in results if result.bytes == nbytes]
        assert at == pytest.approx([osu_bw] * 12, rel=0.02)


@pytest.mark.parametrize(
    ("name", "expected", "says"),
    [
        ("no_cuda_ipc", Verdict.FAILED, "the data used cma, sysv, not cuda_ipc"),
        ("tcp_only", Verdict.FAILED, "the data used tcp"),
        ("die", Verdict.FAILED, "exit status 137"),
        ("corrupt", Verdict.FAILED, "bytes arrived wrong"),
        ("same_gpu", Verdict.FAILED, "4 ranks share the GPU 0000:00:06.0 of vm"),
        ("too_few_gpus", Verdict.FAILED, "has no GPU of its own: 2 are visible"),
    ],
)
def test_injected_faults_on_h200(data, name, expected, says):
    results = judged(recorded(data, name))
    assert verdict(results) is expected
    assert any(says in result.message for result in results)


def test_a_slow_transport_is_degraded_where_all_sizes_were_measured(data):
    results = judged(recorded(data, "no_cuda_ipc"), asking("--sizes=16M", "--latency-sizes=8"))
    assert verdict(results) is Verdict.DEGRADED
    assert sum(result.verdict is Verdict.DEGRADED for result in results) == 12 + 12 + 1


def test_another_lane_than_asked_fails(data):
    results = judged(recorded(data, "new_ucx_healthy"))
    assert any("requested lane ucx-1.14, but UCX 1.22.0 was loaded" in r.message for r in results)
    assert verdict(results) is Verdict.FAILED
    current = judged(recorded(data, "new_ucx_healthy"), lane="ucx-current")
    assert verdict([row for row in current if row.metric == "bandwidth"]) is Verdict.PASS


def test_each_reading_is_needed(data):
    lines = recorded(data, "healthy")
    gone = next(n for n, line in enumerate(lines) if '"metric": "bandwidth"' in line)
    del lines[gone]
    results = judged(lines)
    missing = [result for result in results if result.verdict is not Verdict.PASS]
    says = "gpu_aware: bandwidth 0->1 D D: no reading at 4 MiB"
    assert [result.message for result in missing] == [says]


def test_one_slow_direction_of_one_pair_is_found(data):
    lines = recorded(data, "healthy")
    for number, line in enumerate(lines):
        if '"from": 2, "to": 1' in line and '"bytes": 16777216' in line:
            event = json.loads(line)
            lines[number] = json.dumps({**event, "gb_per_s": event["gb_per_s"] * 17 / 18 * 0.9})
    slow = [result for result in judged(lines) if result.verdict is Verdict.DEGRADED]
    assert [result.pair for result in slow] == ["2->1"]


def test_a_nan_is_no_measurement():
    line = Expectation(limit=10, low=5, typical=7, high=9)
    assert verdict_on(line, float("nan")) is Verdict.FAILED
    assert verdict_on(line, 0) is Verdict.FAILED
    assert verdict_on(line, 11) is Verdict.IMPOSSIBLE
    assert verdict_on(line, 4) is Verdict.DEGRADED
    assert verdict_on(line, 9.5) is Verdict.PASS
    latency = Expectation(limit=1, low=2, typical=3, high=4, unit="us")
    assert [verdict_on(latency, us) for us in (0.5, 3, 5)] == [
        Verdict.IMPOSSIBLE,
        Verdict.PASS,
        Verdict.DEGRADED,
    ]


def test_no_results_is_a_failure():
    assert Outcome("c", "ucx-1.14", ()).verdict is Verdict.FAILED


HOST_RUN = """\
{"event": "copy", "from": 0, "to": 1, "bytes": 65536, "method": "memcpy", "gb_per_s": 50}
{"event": "copy", "from": 0, "to": 1, "bytes": 65536, "method": "process_vm_readv", "gb_per_s": 20}
{"event": "flag", "from": 0, "to": 1, "us": 0.1}
"""


def ceiling(lines: str, *, latency: bool = False, nbytes: int = 65536) -> Expectation:
    events: list[Event] = [parse(line) for line in lines.splitlines()]
    return beside_plain_copies(events, latency=latency, source=0, target=1, nbytes=nbytes)


def test_local_expectation_comes_from_the_copies_of_the_run():
    bandwidth = ceiling(HOST_RUN)
    assert bandwidth.limit == 100
    assert verdict_on(bandwidth, 18) is Verdict.PASS
    assert verdict_on(bandwidth, 8) is Verdict.DEGRADED
    assert verdict_on(bandwidth, 101) is Verdict.IMPOSSIBLE
    latency = ceiling(HOST_RUN, latency=True, nbytes=8)
    assert verdict_on(latency, 0.2) is Verdict.PASS
    assert verdict_on(latency, 3.5) is Verdict.DEGRADED


def test_cores_that_were_moved_within_a_run_are_not_impossible():
    """The flags and readings of a healthy virtual machine, seconds from each other."""
    event = '{{"event": "flag", "from": {}, "to": {}, "us": {}}}\n'
    moved = event.format(0, 1, 0.22503) + event.format(1, 0, 0.04326)
    for reading in (0.0934, 0.135308, 0.355279):
        assert verdict_on(ceiling(moved, latency=True), reading) is Verdict.PASS
    assert verdict_on(ceiling(moved, latency=True), 0.02) is Verdict.IMPOSSIBLE
    assert verdict_on(ceiling(moved, latency=True), 5.2) is Verdict.DEGRADED


def test_local_expectation_where_the_kernel_copy_is_refused():
    lines = HOST_RUN.replace('"gb_per_s": 20', '"error": "Operation not permitted"')
    assert 0 < ceiling(lines).low < 50 / 2


def test_local_expectation_needs_the_copy_of_that_pair_and_size():
    with pytest.raises(NoExpectation, match="no copy was measured"):
        ceiling(HOST_RUN, nbytes=1024)


@pytest.mark.parametrize(
    "line",
    [
        "[1795263870.0] [vm:1:0]  ucp_worker.c:1783 UCX  INFO    ep_cfg[2]: tag(tcp/eth0)",
        "[1795263870.0] [vm:1:0]  ucp_context.c:1783 UCX  INFO    ucp_context_0 intra-node"
        " cfg#2 tag(tcp/eth0)",
    ],
)
def test_one_connection_by_a_wrong_way_is_degraded(data, line):
    results = judged([line, *recorded(data, "healthy")])
    assert verdict(results) is Verdict.DEGRADED
    assert results[0].message == "the data used tcp, not cuda_ipc"


def test_a_reading_that_stands_twice_fails(data):
    lines = recorded(data, "healthy")
    line = next(line for line in lines if '"metric": "bandwidth"' in line)
    forged = json.dumps({**json.loads(line), "gb_per_s": 1.0})
    results = judged([forged, *lines], replace(H200, nonce="0"))
    assert verdict(results) is Verdict.FAILED
    assert any("bandwidth 0->1 D D at 4 MiB was not requested" in r.message for r in results)


def test_repeated_tests_do_not_stand_for_missing_ones(data):
    lines = recorded(data, "healthy")
    tests = [number for number, line in enumerate(lines) if '"operation": "send_recv"' in line]
    for number in tests[1:]:
        lines[number] = lines[tests[0]]
    results = judged(lines, asking("--check=64K"))
    assert any("11 of 12 tests are missing" in result.message for result in results)


def test_small_messages_of_mpich_may_be_slower():
    start = (
        '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "host",'
        ' "ranks": 2, "asked_ranks": 2, "mpi": "MPICH Version: 4.3.2"}\n'
    )
    assert ceiling(start + HOST_RUN).low < ceiling(HOST_RUN).low


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"wrong": 0}', '"wr', "not a line of gpu_aware: is not JSON (Unterminated string"),
        ('"us": ', '"us": "soon", "was": ', "reading.us: Input should be a valid number"),
        ('"reading"', '"readings"', "not a known event"),
    ],
)
def test_a_line_that_cannot_be_read_fails(data, old, new, says):
    lines = recorded(data, "healthy")
    number = next(n for n, line in enumerate(lines) if '"metric": "latency"' in line)
    lines[number] = lines[number].replace(old, new)
    results = judged(lines)
    assert [r.verdict for r in results if says in r.message] == [Verdict.FAILED]
    assert results[0].message.startswith(f"gpu_aware: line {number + 1} ")


@pytest.mark.parametrize(
    ("wanted", "lines", "says"),
    [
        # As MPICH 4.3.2 prints it with MPIR_CVAR_DEBUG_SUMMARY=1.
        ("sockets", ["libfabric provider: sockets - 10.77.0.0/24"], ""),
        ("verbs", ["libfabric provider: verbs;ofi_rxm - 10.77.0.0/24"], ""),
        ("cxi", ["libfabric provider: tcp;ofi_rxm - 10.77.0.0/24"], "libfabric used tcp;ofi_rxm"),
        ("cxi", ["[n1:7] mtl_ofi_component.c:366: mtl:ofi:prov: cxi"], ""),
        ("cxi", ["[n1:7] mtl_ofi_component.c:366: mtl:ofi:prov: shm+cxi:lnx"], ""),
        ("cxi", ["[n1:7] mtl_ofi.c:366: mtl:ofi:prov: tcp;ofi_rxm"], "libfabric used tcp;ofi_rxm"),
        ("cxi", [], "the output does not show which libfabric provider was used"),
    ],
)
def test_mpich_over_libfabric_took_the_fabrics_provider(data, wanted, lines, says):
    log = recorded(data, "healthy") + lines
    found = judged(log, replace(H200, transports=(), provider=wanted))
    messages = [r.message for r in found if r.verdict is not Verdict.PASS]
    assert len(messages) == bool(says)
    assert all(message.startswith(says) for message in messages)


def test_another_number_of_nodes_than_asked_for_fails(data):
    found = judged(recorded(data, "healthy"), replace(H200, nodes=2))
    assert verdict(found) is Verdict.FAILED
    assert any("requested 2 nodes, but the ranks ran on 1" in r.message for r in found)


@pytest.mark.parametrize("fault", ["omit", "corrupt"])
def test_an_injected_fault_never_passes(data, fault):
    """Also if it has nothing to act on: nothing that is measured may be missing."""
    launch = asking("--sizes=4M,16M,256M", "--latency-sizes=8", f"--inject={fault}")
    found = judged(recorded(data, "healthy"), launch)
    assert verdict(found) is Verdict.FAILED
    assert any(f"the fault {fault!r} was injected" in result.message for result in found)


def test_options_that_cannot_be_read_ask_for_nothing():
    assert options_of(["gpu_aware", "--sizes=3x"]) == GpuAwareOptions()


@cases(
    ("buffers", "us", "limit"),
    [("D H", 0.09, 0.1), ("D H", 0.11, None), ("H H", 0.009, 0.01), ("H H", 0.011, None)],
)
def test_no_message_is_faster_than_one_transaction(
    buffers: str, us: float, limit: float | None
) -> None:
    expect = expectation_of(Run(ranks=2, bench="osu_latency"))
    with pytest.raises(NoExpectation) as caught:
        expect(Reading("latency_us", 8, us, buffers=buffers))
    assert caught.value.limit == limit
