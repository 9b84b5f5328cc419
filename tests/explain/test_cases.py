# SPDX-License-Identifier: MIT
"""Cause by cause, from the wording that each tool's sources and documentation give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from busbar.verdict import Verdict
from tests.files import read_table
from tests.small_site import small_site

from .outputs import BANNER, HOST_BANNER, ids, nccl_table, run

CASES = read_table(Path(__file__).with_name("cases.yaml"))


def as_it_says(case: dict[str, Any]) -> Any:
    """Whether exactly the causes of a case are found, in the words that it asks for."""
    text = case["text"].replace("<OSU>\n", BANNER).replace("<OSU HOST>\n", HOST_BANNER)
    if "table" in case:
        text = text.replace("<TABLE>\n", nccl_table(**case["table"]))
    told = Verdict(case["told"]) if "told" in case else None
    found = run(text, site=case.get("site"), verdict=told)
    first = found.causes[0] if found.causes else None
    return (
        ids(found) == set(case["causes"])
        and case.get("verdict", found.verdict) == found.verdict
        and ("note" not in case or case["note"] in {note.id for note in found.notes})
        and (not first or case.get("says", "") in first.summary)
        and (not first or first.summary.endswith(case.get("ends", "")))
        and (not first or case.get("remedy", "") in first.remedy)
        and (not first or case.get("confidence", first.confidence) == first.confidence)
        and ("line" not in case or (first and case["line"] == first.evidence[0].text))
    )


def test_every_case() -> None:
    assert len(CASES) > 120
    assert [case for case in CASES if not as_it_says(case)] == []


# ---- a job that dies, hangs, or never was one
def test_a_peer_that_disconnects_first() -> None:
    """UCX reports it as an error; what the program had to say stands before."""
    reset = (
        "[1795332270.222008] [n3:546  :0] flush.c:56   UCX  ERROR req 0x55d2: error during flush:"
    )
    reset += " Connection reset by remote peer\n"
    checked = (
        '{"event": "check", "operation": "bcast", "buffers": "H H", "bytes": 8, "messages": 19,'
        ' "wrong": 0}\n'
    )
    end = '{"event": "end", "wrong": 0, "seconds": 4.3}\n'
    assert ids(run(checked + end, reset)) == set()
    assert "rank-died" in ids(run(checked, reset))


def test_singletons() -> None:
    start = (
        '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "host",'
        ' "ranks": 1, "asked_ranks": 4}\n'
    )
    error = '{"event": "error", "rank": 0, "text": "asked for 4 ranks, MPI started 1"}\n'
    found = run((start + error) * 4)
    assert (str(found.verdict), ids(found)) == ("failed", {"singletons"})
    assert found.causes[0].details == {"programs": 4}
    assert ids(run("This test requires exactly two processes\n" * 2)) == {"singletons"}
    lone = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n#\n# Using devices\n"
    lone += "#  Rank  0 Group  0 Pid  {} on n1 device  0 [0x10] NVIDIA H200\n"
    assert ids(run(lone.format(1) + lone.format(2))) == {"singletons"}


def gpu_aware(*lines: str, ranks: int = 2, end: bool = True) -> str:
    text = (
        '{"event": "start", "program": "gpu_aware", "version": "1.0", "backend": "cuda",'
        f' "ranks": {ranks}, "asked_ranks": {ranks}, "mpi": "Open MPI v5.0.11"}}\n'
    )
    return (
        text
        + "\n".join(lines)
        + ('\n{"event": "end", "wrong": 0, "seconds": 1}\n' if end else "\n")
    )


def reading(source: int, target: int, rate: float, nbytes: int = 1 << 28, wrong: int = 0) -> str:
    return (
        f'{{"event": "reading", "metric": "bandwidth", "from": {source}, "to": {target},'
        ' "buffers": "D D",'
        f' "bytes": {nbytes}, "gb_per_s": {rate}, "window": 64, "wrong": {wrong}}}'
    )


def test_gpu_aware_faults() -> None:
    assert str(run(gpu_aware(reading(0, 1, 394.0)), site="h200x4").verdict) == "pass"
    corrupt = run(gpu_aware(reading(0, 1, 394.0, wrong=1)), site="h200x4")
    assert (str(corrupt.verdict), ids(corrupt)) == ("failed", {"wrong-data"})
    cut = run(gpu_aware(reading(0, 1, 394.0), end=False), site="h200x4")
    assert ids(cut) == {"truncated-output"}
    low = run(gpu_aware(reading(0, 1, 40.0)), site="h200x4")
    assert (str(low.verdict), ids(low)) == ("degraded", {"below-band-unexplained"})
    told = run(gpu_aware(reading(0, 1, 40.0)), verdict=low.verdict)
    assert ids(told) == {"below-band-unexplained"}
    high = run(gpu_aware(reading(0, 1, 1900.0)), site="h200x4")
    assert (str(high.verdict), ids(high)) == ("impossible", {"same-gpu"})


def test_two_ranks_that_name_one_gpu() -> None:
    place = (
        '{{"event": "rank", "rank": {0}, "host": "n1", "pid": 5, "node_rank": {0},'
        ' "device": "0000:06:00.0", "cpus": "{0}"}}'
    )
    found = run(gpu_aware(place.format(0), place.format(1), reading(0, 1, 1900.0)))
    assert ids(found) == {"same-gpu"}
    assert found.causes[0].confidence == "certain"


@pytest.mark.parametrize(
    ("scatter", "first"), [(0.0, "gpu-link-slow"), (1.0, "gpu-link-slow"), (20.0, "gpu-busy")]
)
def test_a_slow_gpu_in_the_matrix_names_both_that_fit(scatter: float, first: str) -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    rows = [reading(a, b, 200.0 + scatter * a if 2 in (a, b) else 390.0) for a, b in pairs]
    found = run(gpu_aware(*rows, ranks=4), site="h200x4")
    assert [cause.id for cause in found.causes] == [
        first,
        *({"gpu-busy", "gpu-link-slow"} - {first}),
    ]
    assert {cause.confidence for cause in found.causes} == {"likely"}
    assert found.causes[0].details == {"rank": 2}


# ---- UCX


def test_stderr_is_context_of_stdout() -> None:
    log = "[1.0] [n1:5:0] ucp_worker.c:1783 UCX  INFO    ep_cfg[2]: tag(tcp/lo)\n"
    found = run(HOST_BANNER + "4194304 1900.0\n", log)
    assert ids(found) == {"ucx-tcp-fallback"}
    assert found.causes[0].evidence[0].file == "file1"


def test_tcp_is_no_fallback_where_the_fabric_is_tcp(tmp_path: Path) -> None:
    log = "[1.0] [n1:5:0] ucp_worker.c:1783 UCX  INFO      inter-node cfg#2 tag(tcp/eth0)\n"
    for provider, found in (("verbs", {"ucx-tcp-fallback"}), ("tcp", set())):
        (tmp_path / provider).mkdir()
        site = small_site(tmp_path / provider)
        with (site / "site.yaml").open("a") as file:
            file.write(f"fabric: {{provider: {provider}, rails: 1}}\n")
        assert ids(run(HOST_BANNER + "4194304 1900.0\n", log, site=str(site))) == found


# ---- NCCL


@pytest.mark.parametrize(("ranks", "rate", "named"), [(2, 100.0, False), (8, 300.0, True)])
def test_multicast_is_no_cause_where_it_raises_no_limit(
    ranks: int, rate: float, named: bool
) -> None:
    log = "n1:10:10 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\n"
    table = nccl_table({1 << 30: rate}, ranks=ranks, gpu="NVIDIA H100 80GB HBM3")
    found = run(table, log, site="p5")
    assert str(found.verdict) == "degraded"
    assert ("nccl-nvls-off" in ids(found)) == named


def test_truncated_table() -> None:
    whole = nccl_table({1 << 28: 340.0, 1 << 30: 355.0})
    cut = whole[: whole.rindex("  1073741824")]
    found = run(cut, site="h200x4")
    assert (found.verdict, ids(found)) == (Verdict.UNJUDGED, set())
    assert "1073741824 were requested" in next(
        n.summary for n in found.notes if n.id == "end-not-shown"
    )
    failed = run(cut + "node1: fatal: the program ends here\n")
    assert ids(failed) == {"truncated-output"}
    assert "fatal" in failed.causes[0].evidence[-1].text
    assert not ids(run(cut + "node1:1:1 [0] NCCL INFO NET/IB : failed to open a device\n"))


def test_an_xid_beside_the_error_of_cuda() -> None:
    """The kernel's line is evidence of the same cause."""
    error = "[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    kernel = "Nov 21 04:41:05 n1 kernel: NVRM: Xid (PCI:0000:c3:00): 48, pid=9, DBE on FBPA 4\n"
    found = run(error + kernel)
    assert ids(found) == {"gpu-fault"}
    assert [line.text + "\n" for line in found.causes[0].evidence] == [error, kernel]


def test_a_row_in_which_the_file_ends() -> None:
    whole = nccl_table({1 << 28: 340.0, 1 << 30: 355.0})
    assert ids(run(whole[: whole.index("# Out") - 40])) == {"truncated-output"}


# ---- what was asked, and what has no band
def test_versions_that_were_asked_for() -> None:
    log = "node0:1000:9 [0] NCCL INFO NCCL version 2.28.3+cuda13.0\n"
    log += "node0:1000:9 [0] NCCL INFO NET/OFI Using CUDA runtime version 12020\n"
    table = nccl_table({1 << 30: 355.0})
    assert str(run(log, table, asked={"nccl": "2.28", "cuda": "12.2"}).verdict) == "pass"
    assert ids(run(log, table, asked={"nccl": "2.2"})) == {"nccl-version-mismatch"}
    assert ids(run(log, table, asked={"cuda": "13"})) == {"cuda-version-mismatch"}


def test_a_rank_on_the_wrong_gpu() -> None:
    text = "rank 1 of the node is on GPU 0000:00:08.0, expected 0000:00:07.0"
    error = f'{{"event": "error", "rank": 1, "text": "{text}"}}'
    assert ids(run(gpu_aware(error, end=False))) == {"wrong-gpu"}


def test_far_below_the_limit_where_no_band_is_known() -> None:
    table = nccl_table({1 << 28: 20.0, 1 << 30: 21.0}, ranks=256, nodes=32, gpu="NVIDIA H20")
    found = run(table, site="h20-roce")
    assert (str(found.verdict), ids(found)) == ("degraded", {"below-band-unexplained"})
    near = nccl_table({1 << 28: 180.0, 1 << 30: 190.0}, ranks=256, nodes=32, gpu="NVIDIA H20")
    beyond = run(near, site="h20-roce")
    assert str(beyond.verdict) == "pass"
    assert "outside-known-range" in {note.id for note in beyond.notes}


def test_message_rate_test_does_not_tell_its_buffers() -> None:
    title = "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n"
    on_host = run(title + "67108864 13000.00 193.72\n", site="h200x4")
    assert str(on_host.verdict) == "unjudged"
    assert "no-band" in {note.id for note in on_host.notes}
