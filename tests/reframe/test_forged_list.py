# SPDX-License-Identifier: MIT
"""Outputs that a hostile review forged, each as `busbar check` would judge and keep it.

The ids give the group: A another collective, B another test of OSU, C the table of nccl-tests,
D units and transports of OSU, F another run. E, a fatal line in a healthy table, is among
tests/engine/fatal_lines.txt. G are forgeries that were found later: other GPUs and libraries,
other statistics, late and excused readings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from busbar.verdict import Verdict, combined

from .altered import HEALTHY, brief
from .faults import H200, Break, judged_launch, kept, read, replaced

HALF = r" +([\d.]+) +([\d.]+) +([\d.]+)( +\S+)"
ROW = r"^( +{size} +\d+ +\w+ +\w+ +-?\d+)" + HALF + HALF
NUMBERS = ("time", "algbw", "busbw")
START, READ, END = (f'{{"event": "{name}"' for name in ("start", "reading", "end"))


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


def copied(source: str, target: str) -> Break:
    """The readings of one series are those of another."""

    def change(text: str) -> str:
        rows = [line for line in text.splitlines() if line.startswith(READ)]
        others = iter([row.replace(source, target) for row in rows if source in row])
        alike = {row: next(others) for row in rows if target in row}
        return "\n".join(alike.get(line, line) for line in text.splitlines())

    return change


def full_table(least: str, largest: str) -> Break:
    """The table as ``-f`` prints it, with these multiples of the average beside it."""

    def change(text: str) -> str:
        columns = "Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations"
        text = text.replace("Avg Latency(us)", columns)
        return re.sub(
            r"^(\d+ +)([\d.]+)$",
            lambda m: "   ".join(
                (m[0], *(f"{float(m[2]) * float(x):.2f}" for x in (least, largest)), "100")
            ),
            text,
            flags=re.MULTILINE,
        )

    return change


def slow_latency(us: float, driver_us: float) -> Break:
    """Another latency between two GPUs; the others have the driver's time of a quiet machine."""

    def change(text: str) -> str:
        line = r'("metric": "latency".*"us": )[\d.]+(.*?)(?:, "driver_us": [\d.]+)?}'
        quiet = re.sub(line, r'\g<1>8.3\2, "driver_us": 8.2}', text)
        return re.sub(line, rf'\g<1>{us}\2, "driver_us": {driver_us}}}', quiet, count=1)

    return change


_BCAST = HEALTHY["osu_bcast"]
_FULL = replace(_BCAST.launch, command=(*_BCAST.launch.command, "-f"))
_GPU_AWARE = HEALTHY["gpu_aware"]
RECORDS = {
    **HEALTHY,
    "osu_bcast -f": replace(_BCAST, launch=_FULL),
    # As `busbar explain` reads it: a run of two GPUs has no others to compare with.
    "gpu_aware of 4 GPUs": replace(
        _GPU_AWARE,
        launch=replace(_GPU_AWARE.launch, ranks=4, nonce=""),
        text="\n".join(read("h200x4/gpu_aware_healthy.log")),
        run=H200,
    ),
}
FORGED: dict[str, dict[str, Break]] = {
    "all_gather": {
        "A1-all_reduce-as-all_gather": output_of("all_reduce"),
        "A3-alltoall-as-all_gather": output_of("alltoall"),
    },
    "alltoall": {"A2-all_gather-as-alltoall": output_of("all_gather")},
    "broadcast": {"A4-all_reduce-as-broadcast": output_of("all_reduce")},
    "osu_bw": {
        "B1-osu_latency-as-osu_bw": output_of("osu_latency"),
        "B2-osu_bibw-as-osu_bw": output_of("osu_bibw"),
        "D1-GB/s": replaced("(MB/s)", "(GB/s)"),
        "D2-MiB/s": replaced("(MB/s)", "(MiB/s)"),
        "D3-Gb/s": replaced("(MB/s)", "(Gb/s)"),
        "D4-title-of-host-buffers": replaced("MPI-CUDA", "MPI"),
        "D5-one-endpoint-by-tcp": once(r"(^.*)tag\([^)]*cuda_ipc.*$", r"\g<0>\n\1tag(tcp/eth0)"),
        "G3-ROCm-buffers": replaced("MPI-CUDA", "MPI-ROCM"),
        "G4-row-of-OSU-after-the-exit": moved_behind(r"^16777216 .*", "exit_status"),
        "G8-rate-twice-in-a-row": once(r"^16777216 +(\S+)$", r"\g<0>  \1"),
        "G6-version-without-datatypes": replaced("Test v7.4", "Test v3.1"),
        "G6-old-version": every(
            "v7.4|^# Datatype.*\n", lambda m: "v3.1" if m[0] == "v7.4" else ""
        ),
        "G6-version-with-buffers": every(
            "v7.4|^# Datatype.*\n", lambda m: "v6.3" * (m[0] == "v7.4")
        ),
        "G6-no-datatype": every("^# Datatype.*\n", ""),
        "G7-UCX-without-GPUs": once(
            r"^\[179", "UCX  INFO  UCX_* env variables: UCX_TLS=tcp,self\n[179"
        ),
        "G7-UCX-without-its-path": once(
            r"^\[179", "UCX  INFO  UCX_* env variables: UCX_TLS=^cuda_ipc\n[179"
        ),
        "G7-time-of-1970": once(r"^\[\d+(\.\d+\] \[vm:12001)", r"[12\1"),
        "G10-row-with-a-comma": once("^(16777216 .*)$", r"\1\n33554432  359,173.06"),
        "G10-NUL-in-a-row": replaced("359173.06", "35\0" + "9173.06"),
        "G10-same-node-rank": replaced('"node_rank": 1', '"node_rank": 0'),
    },
    "all_reduce": {
        "C1-time-and-algbw-halved": rows(time=2, algbw=0.5),
        "C2-busbw-raised": rows(busbw=1.02),
        "C3-count-divided": once(r"262144     float", " 65536     float"),
        "C4-int8": every("    float     sum", "     int8     sum"),
        "C5-wrong-below-1": every(r" 0(\s+[\d.]+ +[\d.]+ +[\d.]+ +)0$", r" 9e-01\1 9e-01"),
        "C6-nan": once(r"353\.73", "nan"),
        "C7-inf": once(r"353\.73", "inf"),
        "C8-zero": once(r"353\.73", "0.00"),
        "C9-out-of-bounds-failed": replaced("0 OK", "3 FAILED"),
        "C10-out-of-bounds-3-OK": replaced("0 OK", "3 OK"),
        "C11-no-out-of-bounds": every("^# Out of.*\n", ""),
        "C12-max": every("float     sum", "float     max"),
        "C13-1-MiB-at-a-tenth": rows("1048576", time=10, algbw=0.1, busbw=0.1),
        "C14-row-missing": every(r"^ +67108864 .*\n", ""),
        "C15-row-twice": every(r"(^ +67108864 .*\n)", r"\1\1"),
        "C16-no-exit-status": every("^exit_status=0$", ""),
        "C17-status-1-before-0": every("^exit_status=0$", "exit_status=1\nexit_status=0"),
        "C18-status-1-after-0": every("^exit_status=0$", "exit_status=0\nexit_status=1"),
        "C19-status-of-another-script": every("^exit_status=0$", "exit_status=\uff10"),
        "C19-two-programs": lambda text: text + "\n" + text.partition("\n")[2],
        "C20-no-log-of-NCCL": every("^.*NCCL INFO.*$", ""),
        "C21-NET-Socket": replaced("via P2P/CUMEM", "via NET/Socket/0"),
        "C22-other-host": replaced("on         vm device  3", "on         vn device  3"),
        "C23-rank-twice": replaced('"rank": 3, "ranks"', '"rank": 2, "ranks"'),
        "C24-columns-swapped": every(r"(\d\.\d\d) +([\d.]+) +([\d.]+)( +0 )", r"\1  \3  \2\4"),
        "C25-1G-for-18G": replaced("maxBytes 1073741824", "maxBytes 19327352832"),
        "C26-slow-in-place": rows(halves="second", time=2, algbw=0.5, busbw=0.5),
        "G1-GPU-of-another-model": replaced("NVIDIA H200", "NVIDIA H100 80GB HBM3"),
        "G1-one-GPU-of-another-model": once("NVIDIA H200$", "NVIDIA H20"),
        "G1-PCIe-model": replaced("NVIDIA H200", "NVIDIA H200 NVL"),
        "G1-GPU-of-another-vendor": replaced("NVIDIA H200", "AMD Instinct MI300X"),
        "G4-row-after-the-summary": moved_behind("^ +67108864 .*", "# Avg bus"),
        "G4-row-after-the-exit": moved_behind("^ +67108864 .*", "exit_status"),
        "G8-average-of-others": once(r"(Avg bus bandwidth +: )\S+", r"\g<1>251.0"),
        "G8-average-that-is-no-number": once(r"(Avg bus bandwidth +: )\S+", r"\1nan"),
        "G8-one-row-raised": rows("268435456", time=0.97, algbw=1.031, busbw=1.031),
        "G9-rows-fall": moved_behind("^ +1048576 .*", " 1073741824  "),
        "G9-step-in-bytes": replaced("step: 4(factor)", "step: 1048576(bytes)"),
        "G9-largest-size-reduced": line_inside("# Reducing maxBytes to 4194304 due to memory"),
        "G7-another-collective-in-the-log": line_inside(
            "vm:1:1 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"
        ),
        "G7-a-connection-over-sockets": line_inside(
            "vm:1:1 [0] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via NET/Socket/0"
        ),
        "G7-no-warm-up": replaced("warmup iters: 1", "warmup iters: 0"),
        "G7-unaligned": replaced("unalign: 0", "unalign: 1"),
        "G10-no-columns": every(r"^# +size .*\n", ""),
        "G10-no-units": every(r"^# +\(B\) .*\n", ""),
        "G10-started-twice": once("^# Collective test starting.*", r"\g<0>\n\g<0>"),
        "G10-half-a-row": once(r"^( +1073741824(?: +\S+){8})", r"\1\n\g<0>"),
        "G10-one-process-for-all": every(r"Pid +\d+", "Pid  12295"),
        "G11-in-place-is-out-of-place": every(
            ROW.format(size=r"\d+"), lambda m: f"{m[1]}{(' ' + '  '.join(m.groups()[1:5])) * 2}"
        ),
        "G6-version-in-the-log": line_inside("vm:1:1 [0] NCCL INFO NCCL version 2.18.5+cuda12.2"),
        "G6-version-in-the-banner": lambda text: line_inside(
            "vm:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0"
        )(text.replace("nccl-library=22809", "nccl-library=22703")),
    },
    "osu_bibw": {
        "D6-osu_bibw-above-limit": every(
            r"^(\d+ +)([\d.]+)$", lambda m: f"{m[1]}{float(m[2]) * 1.5:.2f}"
        )
    },
    "gpu_aware": {
        "F1-output-of-yesterday": once(r'"nonce": "\w+"', '"nonce": "0123456789abcdef"'),
        "G1-model-of-a-rank": once('"NVIDIA H100 80GB HBM3"', '"NVIDIA A100-SXM4-80GB"'),
        "G9-a-test-more": once(
            f"^({END})",
            '{"event": "check", "operation": "send_recv", "buffers":'
            ' "D D", "from": 0, "to": 1, "bytes": 9, "messages": 32, "wrong": 0}\n\\1',
        ),
        "G7-shorter-than-its-readings": every(
            r'(^{"event": "end".*"seconds": )[\d.]+', r"\g<1>0.01"
        ),
        "G7-one-message-in-flight": every(
            r'"window": 64(.*"seconds": )[\d.e-]+', r'"window": 1\g<1>1e-05'
        ),
        "G7-no-rank-waited": every('^{"event": "idle", "rank": 1.*\n', ""),
        "G7-driver-of-a-nanosecond": once(r'("us": [\d.]+)', r'\1, "driver_us": 0.001'),
        "G11-directions-alike": copied('"from": 0, "to": 1', '"from": 1, "to": 0'),
        "G2-best-of-gpu_aware": once('"statistic": "mean"', '"statistic": "best"'),
        "G3-back-end-hip": replaced('"backend": "cuda"', '"backend": "hip"'),
        "G4-reading-after-the-end": moved_behind(f"^{READ}.*", END),
        "G4-test-after-the-end": moved_behind('^{"event": "check".*', END),
        "G5-driver-slower-than-the-message": slow_latency(11.5, 30.0),
        "G5-faster-than-PCIe-by-gpu_aware": once(r'("us": )[\d.]+', r"\g<1>0.5"),
        "G7-rate-that-its-time-contradicts": once(
            r'("bytes": 4194304.*"seconds": )[\d.]+', r"\g<1>1.0"
        ),
    },
    "gpu_aware of 4 GPUs": {"G5-driver-slower-than-of-others": slow_latency(13.2, 12.0)},
    "framework": {
        "G1-model-through-PyTorch": once('"NVIDIA H100 80GB HBM3"', '"NVIDIA A100-SXM4-80GB"'),
        "G1-PyTorch-without-CUDA": every(r'("torch": "[\d.]+\+)\w+', r"\1cpu"),
        "G7-PyTorch-in-no-time": every(r'(^{"event": "end".*"seconds": )[\d.]+', r"\g<1>0.001"),
        "G11-one-operation-twice": copied('"all_gather"', '"reduce_scatter"'),
        "G2-best-through-PyTorch": once(START, f'{START}, "statistic": "best"'),
        "G2-best-of-one-reading": once(READ, f'{READ}, "statistic": "best"'),
        "G3-back-end-hip-through-PyTorch": replaced('"backend": "cuda"', '"backend": "hip"'),
        "G4-reading-of-PyTorch-after-the-end": moved_behind(f"^{READ}.*", END),
    },
    "memory": {
        "G5-host-memory-beyond-its-cores": every(
            r'("operation": "(?:one|all)_cores?".*"gb_per_s": )[\d.]+', r"\g<1>5000"
        ),
        "G5-buffers-of-a-copy": replaced('"buffers": "H D"', '"buffers": "H"'),
        "G5-memory-of-twice-its-rate": every(
            r'("operation": "local".*"gb_per_s": )[\d.]+(.*"memory_gb_per_s": )[\d.]+',
            r"\g<1>4000.0\g<2>9628.6",
        ),
        "G2-best-of-copies": once(START, f'{START}, "statistic": "best"'),
        "G4-copy-after-the-end": moved_behind(f"^{READ}.*", END),
        "G5-memory-slower-than-its-kind": every(
            r'("operation": "local".*"gb_per_s": )[\d.]+(.*"memory_gb_per_s": )[\d.]+',
            r"\g<1>900.0\g<2>2200.0",
        ),
    },
    "osu_latency": {
        "G3-ROCm-buffers-latency": replaced("MPI-CUDA", "MPI-ROCM"),
        "G5-faster-than-PCIe": once(r"^(8 +)[\d.]+$", r"\g<1>0.50"),
        "G9-rows-of-OSU-fall": moved_behind("^8 .*", "65536  "),
    },
    "osu_bcast": {
        "G3-ROCm-buffers-collective": replaced("MPI-CUDA", "MPI-ROCM"),
        "G8-columns-that-were-not-requested": full_table("0.8", "1.1"),
        "G8-least-and-largest-without-names": every(r"^\d+ +(\S+)$", r"\g<0>  \1  \1  100"),
    },
    "osu_bcast -f": {
        "G8-average-below-the-least": full_table("1.2", "2.0"),
        "G8-average-above-the-largest": full_table("0.2", "0.9"),
    },
    "fabric_ucx_gpu": {
        "G7-buffers-in-the-host": once("^[+]", "| Send memory:  host |\n+"),
        "G7-another-size": once("^[+]", "| Message size: 4096 |\n+"),
        "G7-another-test": once("^[+]", "| Test:         tag match latency |\n+"),
        "G7-average-rate": replaced("367164.61  367164.61", "1.61  367164.61"),
        "G10-two-final-rows": once("^(Final.*)$", r"\1\n\1"),
        "G4-row-of-ucx_perftest-after-the-exit": moved_behind("^Final.*", "exit_status"),
    },
    "fabric_libfabric": {
        "G4-row-of-libfabric-after-the-exit": moved_behind("^1m .*", "exit_status"),
        "G7-total-of-libfabric": replaced("400m", "200m"),
        "G7-time-of-libfabric": replaced("0.20s", "0.02s"),
        "G7-rate-and-time-of-a-message": replaced("2124.37     493.60", "4248.74     246.80"),
        "G7-nothing-came-back": replaced("=200", "="),
    },
}
"""By the record that is altered; A to F are of the review, which had 9 fatal lines besides."""

READING = (
    '{"event": "reading", "metric": "bandwidth", "from": %d, "to": %d, "buffers": "D D",'
    ' "bytes": %d, "gb_per_s": %g, "wrong": %d}\n'
)
RANK = (
    '{"event": "rank", "rank": %d, "ranks": 2, "node_rank": 1, "host": "vm", "pid": 1,'
    ' "cpus": "0", "device": "0000:00:0c.0", "device_name": "NVIDIA H100 80GB HBM3"}\n'
)
OWN = ("gpu_aware", "memory")
NCCL_TESTS = ("all_reduce", "all_gather", "alltoall", "broadcast")

STRANGE = [
    ("gpu_aware", r'"end", "wrong": 0', '"end", "wrong": 5'),
    *(
        ("gpu_aware", re.escape(END), line + END)
        for line in (
            READING % (0, 1, 12345, 300, 7),
            READING % (0, 1, 1 << 27, 3, 0),
            READING % (9, 1, 1 << 22, 300, 0),
            READING % (1, 1, 1 << 22, 300, 0),
            RANK % 2,
            RANK % 1,
            END + ', "wrong": 0}\n',
        )
    ),
    ("gpu_aware", r'"device": "0000:[^"]*"', '"device": ""'),
    ("gpu_aware", r'"backend": "cuda"', '"backend": "host"'),
    ("gpu_aware", r'"program": "gpu_aware"', '"program": "memory"'),
    ("gpu_aware", r'"asked_ranks": 2', '"asked_ranks": 8'),
    ("gpu_aware", r'"verified": \d+', '"verified": 0'),
    ("gpu_aware", r'"messages": \d+', '"messages": 0'),
    ("gpu_aware", r'"asked_ranks": 2', '"asked_ranks": 2, "share_devices": 1'),
    ("gpu_aware", r'("nonce": "[0-9a-f]+")', r'"nonce": "00", \1'),
    ("gpu_aware", r'"wrong": 0\}', '"wrong": 9, "wrong": 0}'),
    *((name, r'"version": "[\d.]+"', '"version": "1.0"') for name in (*OWN, "framework")),
    *(
        (name, rf', "{field}": [\d.]+', "")
        for name, field in (
            *(("gpu_aware", each) for each in ("verified", "window", "windows", "seconds")),
            *(("gpu_aware", each) for each in ("trips", "messages", "clock_ratio")),
            *(("framework", each) for each in ("verified", "us", "algbw_gb_per_s")),
        )
    ),
    *(
        (n, rf'("program": "{n}", "version": )"1.."', rf'\1"{v}"')
        for n in OWN
        for v in ("0.1", "x")
    ),
    *(
        ("gpu_aware", rf'"{key}": [0-9.]+', f'"{key}": {value}')
        for key in ("windows", "window", "trips", "seconds", "cpu_seconds")
        for value in (*(0,) * (key in ("windows", "window", "trips")), -1, "NaN", "Infinity")
    ),
    ("memory", r'"backend": "cuda"', '"backend": "host"'),
    ("memory", r'(?m)^{"event": "rank".*\n', ""),
    ("memory", r'"memory_gb_per_s": [0-9.]+', '"memory_gb_per_s": NaN'),
    *((name, "# Out", "# Out of bounds values : 3 FAILED\n# Out") for name in NCCL_TESTS),
    *((name, r"(?m)^# nThread.*\n", "") for name in NCCL_TESTS),
    *((name, r"(?m)^#  Rank.*\n", "") for name in NCCL_TESTS),
]


def test_the_record_passes() -> None:
    records = {name: kept(RECORDS[name], brief(RECORDS[name].text)) for name in FORGED}
    bcast = RECORDS["osu_bcast -f"]
    records["osu_bcast -f"] = kept(bcast, full_table("0.8", "1.1")(brief(bcast.text)))
    assert {n: o.sentence() for n, o in records.items() if o.verdict.is_problem} == {}


def test_a_forged_output_does_not_pass() -> None:
    ids = [each for changes in FORGED.values() for each in changes]
    assert sum(each[0] in "ABCDEF" for each in ids) == 40
    passed = []
    for name, changes in FORGED.items():
        text = brief(RECORDS[name].text)
        for each, change in changes.items():
            assert change(text) != text, each
            if not kept(RECORDS[name], change(text)).verdict.is_problem:
                passed.append(each)
    assert passed == []


def test_lines_that_a_healthy_run_cannot_have_do_not_pass() -> None:
    """The launch alone is judged; causes do not count."""
    passed = []
    for name, pattern, new in STRANGE:
        text = brief(HEALTHY[name].text)
        forged = re.sub(pattern, lambda match, new=new: match.expand(new), text)
        assert forged != text, new
        results = judged_launch(HEALTHY[name], forged).results
        if not combined(result.verdict for result in results).is_problem:
            passed.append((name, new))
    assert passed == []


def test_the_library_must_be_that_of_the_lock() -> None:
    kind = HEALTHY["all_reduce"]
    text = brief(kind.text)
    assert not kept(kind, text, {"nccl": "2.28.9"}).verdict.is_problem
    other = kept(kind, text, {"nccl": "2.28.7"})
    assert other.verdict is Verdict.FAILED
    assert [cause.id for cause in other.causes] == ["nccl-version-mismatch"]
