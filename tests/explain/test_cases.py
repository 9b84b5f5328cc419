# SPDX-License-Identifier: MIT
"""Cause by cause, from the wording that each tool's sources and documentation give."""

from __future__ import annotations

import pytest

from busbar.verdict import Verdict

from .outputs import BANNER, HOST_BANNER, ids, nccl_table, run


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


def test_an_exit_status_alone() -> None:
    assert ids(run(BANNER + "4194304 285000\nexit_status=124\n")) == {"timeout"}
    died = run(BANNER + "4194304 285000\nexit_status=1\n")
    assert ids(died) == {"rank-died"}
    assert died.causes[0].confidence == "likely"


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


def test_a_slow_gpu_in_the_matrix_names_both_that_fit() -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    rows = [reading(a, b, 200.0 if 2 in (a, b) else 390.0) for a, b in pairs]
    found = run(gpu_aware(*rows, ranks=4), site="h200x4")
    assert ids(found) == {"gpu-busy", "gpu-link-slow"}
    assert {cause.confidence for cause in found.causes} == {"likely"}
    assert found.causes[0].details == {"rank": 2}


# ---- UCX
@pytest.mark.parametrize(
    "line",
    [
        "[1.0] [n1:5:0] ucp_worker.c:1783 UCX  INFO    ep_cfg[2]: tag(tcp/lo tcp/eth0)",
        "[1.0] [n1:5:0] ucp_worker.c:1991 UCX  INFO    ucp_context_0 intra-node cfg#2"
        " tag(tcp/eth0)",
    ],
)
def test_ucx_over_tcp_inside_a_node(line: str) -> None:
    found = run(line + "\n" + HOST_BANNER + "4194304 1900.0\n")
    assert (str(found.verdict), ids(found)) == ("degraded", {"ucx-tcp-fallback"})
    assert found.causes[0].confidence == "certain"


def test_ucx_without_gpu_transport() -> None:
    line = "[1.0] [n1:5:0] ucp_worker.c:1783 UCX  INFO    ep_cfg[2]: tag(sysv/memory cma/memory)\n"
    assert ids(run(line + BANNER + "4194304 9000.0\n")) == {"ucx-no-gpu-transport"}
    assert not ids(run(line + HOST_BANNER + "4194304 9000.0\n"))


def test_forced_eager_only_when_slow() -> None:
    line = (
        "[1.0] [n1:5:0] parser.c:1998 UCX  INFO  UCX_* env variables: UCX_RNDV_THRESH=inf"
        " UCX_LOG_LEVEL=info\n"
    )
    assert ids(run(line + BANNER + "16777216 9000.0\n", site="h200x4")) == {"ucx-forced-eager"}
    healthy = run(line + BANNER + "16777216 358000.0\n", site="h200x4")
    assert not healthy.causes
    assert "setting-harmless" in {note.id for note in healthy.notes}


def test_stderr_is_context_of_stdout() -> None:
    log = "[1.0] [n1:5:0] ucp_worker.c:1783 UCX  INFO    ep_cfg[2]: tag(tcp/lo)\n"
    found = run(HOST_BANNER + "4194304 1900.0\n", log)
    assert ids(found) == {"ucx-tcp-fallback"}
    assert found.causes[0].evidence[0].file == "file1"


def test_mpich_gpu_support_off() -> None:
    shown = "PE 0:   MPICH_GPU_SUPPORT_ENABLED                          = 0\n"
    died = "srun: error: n1: task 0: Segmentation fault\n"
    rocm = "# OSU MPI-ROCM Bandwidth Test v7.0\n"
    assert ids(run(shown + rocm + "Caught signal 11 (Segmentation fault: x)\n" + died)) == {
        "mpich-gpu-support-off"
    }
    assert "mpich-gpu-support-off" in ids(run(rocm + "process_vm_readv: Bad address\n" + died))


# ---- NCCL
def test_settings_count_only_when_slow() -> None:
    log = "n1:10:10 [0] NCCL INFO NCCL_MAX_NCHANNELS set by environment to 8.\n"
    assert not run(nccl_table({1 << 28: 340.0, 1 << 30: 355.0}), log).causes
    assert ids(run(nccl_table({1 << 28: 90.0, 1 << 30: 100.0}), log)) == {"nccl-few-channels"}


@pytest.mark.parametrize(("ranks", "rate", "named"), [(2, 100.0, False), (8, 300.0, True)])
def test_multicast_is_no_cause_where_it_raises_no_limit(
    ranks: int, rate: float, named: bool
) -> None:
    log = "n1:10:10 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\n"
    table = nccl_table({1 << 30: rate}, ranks=ranks, gpu="NVIDIA H100 80GB HBM3")
    found = run(table, log, site="p5")
    assert str(found.verdict) == "degraded"
    assert ("nccl-nvls-off" in ids(found)) == named


def test_wrong_values() -> None:
    table = (
        nccl_table({1 << 30: 355.0})
        .replace(" 0\n# Out", " 3\n# Out")
        .replace(": 0 OK", ": 3 FAILED")
    )
    found = run(table)
    assert (str(found.verdict), ids(found)) == ("failed", {"nccl-wrong-data"})


def test_old_algorithm_numbers() -> None:
    log = (
        "n1:10:10 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
        "n1:10:10 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo 1 proto 0 time 7000.1\n"
    )
    assert ids(run(nccl_table({1 << 28: 145.0, 1 << 30: 148.0}), log)) == {"nccl-slow-protocol"}


def test_impossible_busbw() -> None:
    found = run(nccl_table({1 << 28: 640.0, 1 << 30: 700.0}))
    assert (str(found.verdict), ids(found)) == ("impossible", {"above-limit"})


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
    assert str(run(near, site="h20-roce").verdict) == "unjudged"


def test_message_rate_test_does_not_tell_its_buffers() -> None:
    title = "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n"
    on_host = run(title + "67108864 13000.00 193.72\n", site="h200x4")
    assert str(on_host.verdict) == "unjudged"
    assert "no-band" in {note.id for note in on_host.notes}


IGNORED = """\
Exception ignored in: <function _ConnectionBase.__del__ at 0x7f>
Traceback (most recent call last):
  File "/usr/lib/python3.10/multiprocessing/connection.py", line 132, in __del__
    self._close()
OSError: [Errno 9] Bad file descriptor
"""


def test_an_error_that_python_ignores_ends_nothing() -> None:
    assert ids(run(IGNORED)) == set()


def test_an_error_after_one_that_python_ignores() -> None:
    later = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: not a size\n'
    assert ids(run(IGNORED + later)) == {"rank-died"}
