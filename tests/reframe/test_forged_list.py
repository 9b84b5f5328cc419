# SPDX-License-Identifier: MIT
"""Outputs that a hostile review forged, each as `busbar check` would judge and keep it.

The ids give the group: A another collective, B another test of OSU, C the table of nccl-tests,
D units and transports of OSU, E a fatal line in a healthy table, F another run. G are forgeries
that were found later: other GPUs and libraries, other statistics, late and excused readings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest

from busbar.verdict import Verdict

from .altered import HEALTHY, brief
from .faults import Break, kept, replaced

HALF = r" +([\d.]+) +([\d.]+) +([\d.]+)( +\S+)"
ROW = r"^( +{size} +\d+ +\w+ +\w+ +-?\d+)" + HALF + HALF
NUMBERS = ("time", "algbw", "busbw")
START, READ, END = (f'{{"event": "{name}"' for name in ("start", "reading", "end"))


class Forged(NamedTuple):
    id: str
    kind: str
    change: Break


def every(pattern: str, new: str | Callable[[re.Match[str]], str]) -> Break:
    return lambda text: re.sub(pattern, new, text, flags=re.MULTILINE)


def once(pattern: str, new: str) -> Break:
    return lambda text: re.sub(pattern, new, text, count=1, flags=re.MULTILINE)


def output_of(name: str) -> Break:
    return lambda text: brief(HEALTHY[name].text)


def rows(size: str = r"\d+", halves: str = "both", **factors: float) -> Break:
    """The numbers of rows times factors, by their names."""

    def change(match: re.Match[str]) -> str:
        words = [match[1]]
        for at, half in ((2, "first"), (6, "second")):
            for name, number in zip(NUMBERS, match.groups()[at - 1 : at + 2], strict=True):
                by = factors.get(name, 1.0) if halves in ("both", half) else 1.0
                words.append(f"{float(number) * by:.2f}")
            words.append(match[5 if at == 2 else 9].strip())
        return "  ".join(words)

    return every(ROW.format(size=size), change)


def line_inside(line: str) -> Break:
    return replaced("# Out of bounds", f"{line}\n# Out of bounds")


def moved_behind(line: str, mark: str) -> Break:
    """The first line that fits the pattern stands behind the one with the mark."""

    def change(text: str) -> str:
        match = re.search(line, text, re.MULTILINE)
        assert match
        before, found, after = text.replace(f"{match[0]}\n", "", 1).partition(mark)
        end, newline, rest = after.partition("\n")
        return f"{before}{found}{end}{newline}{match[0]}\n{rest}"

    return change


def slow_latency(us: float, driver_us: float) -> Break:
    """Another latency between two GPUs; the others have the driver's time of a quiet machine."""

    def change(text: str) -> str:
        quiet = re.sub(
            r'("metric": "latency".*"us": )([\d.]+)', r'\g<1>8.3, "driver_us": 8.2', text
        )
        return re.sub(
            r'"us": 8.3, "driver_us": 8.2', f'"us": {us}, "driver_us": {driver_us}', quiet, count=1
        )

    return change


FORGED = [
    Forged("A1-all_reduce-as-all_gather", "all_gather", output_of("all_reduce")),
    Forged("A2-all_gather-as-alltoall", "alltoall", output_of("all_gather")),
    Forged("A3-alltoall-as-all_gather", "all_gather", output_of("alltoall")),
    Forged("A4-all_reduce-as-broadcast", "broadcast", output_of("all_reduce")),
    Forged("B1-osu_latency-as-osu_bw", "osu_bw", output_of("osu_latency")),
    Forged("B2-osu_bibw-as-osu_bw", "osu_bw", output_of("osu_bibw")),
    Forged("C1-time-and-algbw-halved", "all_reduce", rows(time=2, algbw=0.5)),
    Forged("C2-busbw-raised", "all_reduce", rows(busbw=1.02)),
    Forged("C3-count-divided", "all_reduce", once(r"262144     float", " 65536     float")),
    Forged("C4-int8", "all_reduce", every("    float     sum", "     int8     sum")),
    Forged(
        "C5-wrong-below-1",
        "all_reduce",
        every(r" 0(\s+[\d.]+ +[\d.]+ +[\d.]+ +)0$", r" 9e-01\1 9e-01"),
    ),
    Forged("C6-nan", "all_reduce", once(r"353\.73", "nan")),
    Forged("C7-inf", "all_reduce", once(r"353\.73", "inf")),
    Forged("C8-zero", "all_reduce", once(r"353\.73", "0.00")),
    Forged("C9-out-of-bounds-failed", "all_reduce", replaced("0 OK", "3 FAILED")),
    Forged("C10-out-of-bounds-3-OK", "all_reduce", replaced("0 OK", "3 OK")),
    Forged("C11-no-out-of-bounds", "all_reduce", every("^# Out of.*\n", "")),
    Forged("C12-max", "all_reduce", every("float     sum", "float     max")),
    Forged("C13-1-MiB-at-a-tenth", "all_reduce", rows("1048576", time=10, algbw=0.1, busbw=0.1)),
    Forged("C14-row-missing", "all_reduce", every(r"^ +67108864 .*\n", "")),
    Forged("C15-row-twice", "all_reduce", every(r"(^ +67108864 .*\n)", r"\1\1")),
    Forged("C16-no-exit-status", "all_reduce", every("^exit_status=0$", "")),
    Forged(
        "C17-status-1-before-0",
        "all_reduce",
        every("^exit_status=0$", "exit_status=1\nexit_status=0"),
    ),
    Forged(
        "C18-status-1-after-0",
        "all_reduce",
        every("^exit_status=0$", "exit_status=0\nexit_status=1"),
    ),
    Forged("C19-two-programs", "all_reduce", lambda text: text + "\n" + text.partition("\n")[2]),
    Forged("C20-no-log-of-NCCL", "all_reduce", every("^.*NCCL INFO.*$", "")),
    Forged("C21-NET-Socket", "all_reduce", replaced("via P2P/CUMEM", "via NET/Socket/0")),
    Forged(
        "C22-other-host",
        "all_reduce",
        replaced("on         vm device  3", "on         vn device  3"),
    ),
    Forged("C23-rank-twice", "all_reduce", replaced('"rank": 3, "ranks"', '"rank": 2, "ranks"')),
    Forged(
        "C24-columns-swapped",
        "all_reduce",
        every(r"(\d\.\d\d) +([\d.]+) +([\d.]+)( +0 )", r"\1  \3  \2\4"),
    ),
    Forged(
        "C25-1G-for-18G", "all_reduce", replaced("maxBytes 1073741824", "maxBytes 19327352832")
    ),
    Forged("C26-slow-in-place", "all_reduce", rows(halves="second", time=2, algbw=0.5, busbw=0.5)),
    Forged("D1-GB/s", "osu_bw", replaced("(MB/s)", "(GB/s)")),
    Forged("D2-MiB/s", "osu_bw", replaced("(MB/s)", "(MiB/s)")),
    Forged("D3-Gb/s", "osu_bw", replaced("(MB/s)", "(Gb/s)")),
    Forged("D4-title-of-host-buffers", "osu_bw", replaced("MPI-CUDA", "MPI")),
    Forged(
        "D5-one-endpoint-by-tcp",
        "osu_bw",
        once(r"(^.*)tag\([^)]*cuda_ipc.*$", r"\g<0>\n\1tag(tcp/eth0)"),
    ),
    Forged(
        "D6-osu_bibw-above-limit",
        "osu_bibw",
        every(r"^(\d+ +)([\d.]+)$", lambda m: f"{m[1]}{float(m[2]) * 1.5:.2f}"),
    ),
    Forged(
        "E1-signal-9",
        "all_reduce",
        line_inside(
            "mpirun noticed that process rank 3 with PID 4 on node vm exited on signal 9 (Killed)."
        ),
    ),
    Forged(
        "E2-srun-segmentation-fault",
        "all_reduce",
        line_inside("srun: error: node1: task 3: Segmentation fault"),
    ),
    Forged(
        "E3-oom-kill",
        "all_reduce",
        line_inside("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.0."),
    ),
    Forged(
        "E4-time-limit",
        "all_reduce",
        line_inside("*** JOB 5 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***"),
    ),
    Forged(
        "E5-test-CUDA-failure",
        "all_reduce",
        line_inside("Test CUDA failure all_reduce.cu:12 unhandled error"),
    ),
    Forged(
        "E6-MPI_ABORT",
        "all_reduce",
        line_inside("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD"),
    ),
    Forged(
        "E7-ECC",
        "all_reduce",
        line_inside("vm:1:1 [0] enqueue.cc:1 NCCL WARN Cuda failure uncorrectable ECC error"),
    ),
    Forged(
        "E8-Xid",
        "all_reduce",
        line_inside("NVRM: Xid (PCI:0000:06:00): 79, pid=1234, GPU has fallen off the bus."),
    ),
    Forged(
        "E9-signal-of-Open-MPI",
        "all_reduce",
        line_inside("*** Process received signal *** Segmentation fault (11)"),
    ),
    Forged(
        "F1-output-of-yesterday",
        "gpu_aware",
        once(r'"nonce": "\w+"', '"nonce": "0123456789abcdef"'),
    ),
]
"""The 48 of the review."""
LATER = [
    Forged(
        "G1-GPU-of-another-model", "all_reduce", replaced("NVIDIA H200", "NVIDIA H100 80GB HBM3")
    ),
    Forged("G1-one-GPU-of-another-model", "all_reduce", once("NVIDIA H200$", "NVIDIA H20")),
    Forged("G1-PCIe-model", "all_reduce", replaced("NVIDIA H200", "NVIDIA H200 NVL")),
    Forged(
        "G1-GPU-of-another-vendor", "all_reduce", replaced("NVIDIA H200", "AMD Instinct MI300X")
    ),
    Forged("G1-model-of-a-rank", "gpu_aware", once('"NVIDIA H200"', '"NVIDIA A100-SXM4-80GB"')),
    Forged(
        "G1-model-through-PyTorch", "framework", once('"NVIDIA H200"', '"NVIDIA A100-SXM4-80GB"')
    ),
    Forged("G2-best-through-PyTorch", "framework", once(START, f'{START}, "statistic": "best"')),
    Forged("G2-best-of-one-reading", "framework", once(READ, f'{READ}, "statistic": "best"')),
    Forged(
        "G2-best-of-gpu_aware", "gpu_aware", once('"statistic": "mean"', '"statistic": "best"')
    ),
    Forged("G2-best-of-copies", "memory", once(START, f'{START}, "statistic": "best"')),
    Forged("G3-ROCm-buffers", "osu_bw", replaced("MPI-CUDA", "MPI-ROCM")),
    Forged("G3-ROCm-buffers-latency", "osu_latency", replaced("MPI-CUDA", "MPI-ROCM")),
    Forged("G3-ROCm-buffers-collective", "osu_bcast", replaced("MPI-CUDA", "MPI-ROCM")),
    Forged("G3-ROCm-library", "xccl_osu", replaced("NCCL-CUDA", "RCCL-ROCM")),
    Forged("G3-back-end-hip", "gpu_aware", replaced('"backend": "cuda"', '"backend": "hip"')),
    Forged(
        "G3-back-end-hip-through-PyTorch",
        "framework",
        replaced('"backend": "cuda"', '"backend": "hip"'),
    ),
    Forged("G4-row-after-the-summary", "all_reduce", moved_behind("^ +67108864 .*", "# Avg bus")),
    Forged("G4-row-after-the-exit", "all_reduce", moved_behind("^ +67108864 .*", "exit_status")),
    Forged("G4-row-of-OSU-after-the-exit", "osu_bw", moved_behind(r"^16777216 .*", "exit_status")),
    Forged("G4-reading-after-the-end", "gpu_aware", moved_behind(f"^{READ}.*", END)),
    Forged("G4-test-after-the-end", "gpu_aware", moved_behind('^{"event": "check".*', END)),
    Forged("G4-reading-of-PyTorch-after-the-end", "framework", moved_behind(f"^{READ}.*", END)),
    Forged("G4-copy-after-the-end", "memory", moved_behind(f"^{READ}.*", END)),
    Forged(
        "G4-row-of-ucx_perftest-after-the-exit",
        "fabric_ucx_gpu",
        moved_behind("^Final.*", "exit_status"),
    ),
    Forged(
        "G4-row-of-libfabric-after-the-exit",
        "fabric_libfabric",
        moved_behind("^1m .*", "exit_status"),
    ),
    Forged("G5-driver-slower-than-the-message", "gpu_aware", slow_latency(11.5, 30.0)),
    Forged("G5-driver-slower-than-of-others", "gpu_aware", slow_latency(13.2, 12.0)),
    Forged(
        "G5-memory-slower-than-its-kind",
        "memory",
        every(
            r'("operation": "local".*"gb_per_s": )[\d.]+(.*"memory_gb_per_s": )[\d.]+',
            r"\g<1>900.0\g<2>2200.0",
        ),
    ),
    Forged(
        "G6-version-in-the-log",
        "all_reduce",
        line_inside("vm:1:1 [0] NCCL INFO NCCL version 2.18.5+cuda12.2"),
    ),
    Forged(
        "G6-version-in-the-banner",
        "all_reduce",
        lambda text: line_inside("vm:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0")(
            text.replace("nccl-library=22809", "nccl-library=22703")
        ),
    ),
    Forged(
        "G7-rate-that-its-time-contradicts",
        "gpu_aware",
        once(r'("bytes": 4194304, "gb_per_s": [\d.]+, "window": \d+)', r'\1, "seconds": 1.0'),
    ),
]


def test_the_review_forged_48() -> None:
    assert len(FORGED) == len({each.id for each in FORGED}) == 48


@pytest.mark.parametrize("name", sorted({each.kind for each in (*FORGED, *LATER)}))
def test_the_record_passes(name: str) -> None:
    outcome = kept(HEALTHY[name], brief(HEALTHY[name].text))
    assert not outcome.verdict.is_problem, outcome.sentence()


@pytest.mark.parametrize(
    ("name", "change"), [pytest.param(f.kind, f.change, id=f.id) for f in (*FORGED, *LATER)]
)
def test_a_forged_output_does_not_pass(name: str, change: Break) -> None:
    text = brief(HEALTHY[name].text)
    forged = change(text)
    assert forged != text
    assert kept(HEALTHY[name], forged).verdict.is_problem


def test_the_library_must_be_that_of_the_lock() -> None:
    kind = HEALTHY["all_reduce"]
    text = brief(kind.text)
    assert not kept(kind, text, {"nccl": "2.28.9"}).verdict.is_problem
    other = kept(kind, text, {"nccl": "2.28.7"})
    assert other.verdict is Verdict.FAILED
    assert [cause.id for cause in other.causes] == ["nccl-version-mismatch"]
