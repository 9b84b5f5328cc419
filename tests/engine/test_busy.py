# SPDX-License-Identifier: MIT
"""Readings below their band are unknown if the record of other programs accounts for them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from busbar.engine.busy import accounts_for, excused, loads
from busbar.engine.collect import collect
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import Judged, judge_reading
from busbar.expect.expectation import Expectation
from busbar.explain import Source, explain
from busbar.explain.catalog import CAUSES
from busbar.site import load
from busbar.verdict import Verdict
from tests.cases import cases, some

DATA = Path(__file__).resolve().parents[1] / "data"
BAND = Expectation(limit=100, low=50, typical=60, high=70)
HOST = Run(ranks=2, nodes=1, memory="host")
GPU = Run(ranks=2, nodes=1, memory="device", buffers="D D")
# Recorded on a virtual machine with two CPUs: a job of two ranks beside compilers and tests.
COMPILERS = {
    "event": "busy",
    "host": "vm",
    "seconds": 27.62,
    "cpus": 2,
    "own": 0.4222,
    "others": 1.552,
    "node_cpus": 2,
    "node_others": 1.552,
    "steal": 0.002172,
    "switches": 4134,
    "wait": 0.7892,
    "waiting": 1.577,
    "pressure": 0.9207,
    "disk": 0.03524,
    "runnable": 5.2,
    "processes": [{"pid": 12191, "user": "root", "command": "cc1plus", "cpus": 0.3788}],
}
# What the record of such a job shows when little else runs.
QUIET = COMPILERS | {
    "own": 1.893,
    "others": 0.021,
    "node_others": 0.021,
    "wait": 0.004,
    "waiting": 0.008,
    "processes": [],
}
# Others stream memory on 4 of 16 CPUs; nobody waits.
NEIGHBOUR = QUIET | {"cpus": 16, "node_cpus": 16, "others": 4.0, "node_others": 4.0}
IDLE_GPU = {"percent": 0, "mhz": 0, "max_mhz": 1980, "throttle": 0}
GPUS = [
    {"gpu": 0, "bus": "00000000:00:06.0", **IDLE_GPU},
    {"gpu": 1, "bus": "00000000:00:07.0", **IDLE_GPU},
]
STRANGER = {"pid": 4021, "user": "ann", "command": "python3 train.py", "gpu": 0, "mib": 2600}


def output(*records: dict[str, object], more: str = "") -> JobOutput:
    text = more + "".join(json.dumps(record) + "\n" for record in records)
    (facts,) = collect([Source.from_text("job.out", text or "\n")])
    return facts


def judged(value: float, band: Expectation = BAND, nbytes: int = 1 << 30) -> Judged:
    kind = "latency_us" if band.unit == "us" else "bw"
    return judge_reading(Reading(kind, nbytes, value), lambda _: band)


def verdict(
    value: float, record: dict[str, object], run: Run = HOST, nbytes: int = 1 << 30
) -> Verdict:
    (each,) = excused([judged(value, nbytes=nbytes)], loads(output(record), run))
    return each.verdict


def causes(record: dict[str, object], run: Run = GPU, more: str = "") -> list[str]:
    return [load.cause for load in loads(output(record, more=more), run)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(60, "pass"), (49, "unknown"), (5, "unknown"), (101, "impossible"), (0, "failed")],
)
def test_a_busy_node_excuses_slow_readings_only(value: float, expected: str) -> None:
    assert verdict(value, COMPILERS) == expected


@pytest.mark.parametrize("value", [49, 5])
def test_a_quiet_node_excuses_nothing(value: float) -> None:
    assert verdict(value, QUIET) is Verdict.DEGRADED
    assert not loads(output(QUIET), HOST)


def test_a_slow_reading_without_a_record_is_degraded() -> None:
    (each,) = excused([judged(49)], loads(output(), HOST))
    assert each.verdict is Verdict.DEGRADED


@pytest.mark.parametrize(
    "change",
    [
        {"others": 0.01, "waiting": 0.5, "wait": 0.3},  # a daemon, and ranks that wait otherwise
        {"others": 0.3, "own": 1.7, "waiting": 2.3, "wait": 0.55},  # four ranks on two CPUs
        {"own": 2.0, "others": 0.0, "waiting": 2.0, "wait": 0.5},
        {"wait": None, "waiting": None, "own": 0.4, "others": 0.5},  # CPUs to spare
    ],
)
def test_waiting_that_others_do_not_cause_is_no_excuse(change: dict[str, object]) -> None:
    assert verdict(20, COMPILERS | change | {"node_others": 0.0}) is Verdict.DEGRADED


@pytest.mark.parametrize(("value", "expected"), [(45, "unknown"), (20, "degraded")])
def test_a_light_load_excuses_a_little(value: float, expected: str) -> None:
    record = QUIET | {"others": 0.2, "waiting": 0.25, "wait": 0.2, "node_cpus": 64, "cpus": 64}
    assert verdict(value, record) == expected


def test_without_counts_of_the_kernel_full_cpus_are_the_evidence() -> None:
    record = COMPILERS | {"wait": None, "waiting": None}
    assert verdict(20, record) is Verdict.UNKNOWN


def test_what_the_hypervisor_takes_counts() -> None:
    assert verdict(40, QUIET | {"steal": 0.6}) is Verdict.UNKNOWN
    assert verdict(40, QUIET | {"steal": 0.02}) is Verdict.DEGRADED


@pytest.mark.parametrize(("value", "expected"), [(20, "unknown"), (8, "degraded")])
def test_streaming_neighbours_take_memory_bandwidth(value: float, expected: str) -> None:
    assert verdict(value, NEIGHBOUR) == expected
    assert verdict(value, NEIGHBOUR, GPU) is Verdict.DEGRADED
    assert verdict(value, NEIGHBOUR, replace(GPU, buffers="H D")) == expected


def test_latencies_are_excused_as_rates_are() -> None:
    band = Expectation(limit=0.1, low=0.1, typical=0.2, high=0.5, unit="us")
    (each,) = excused([judged(1.1, band)], loads(output(COMPILERS), HOST))
    assert each.verdict is Verdict.UNKNOWN
    (each,) = excused([judged(1.1, band)], loads(output(QUIET), HOST))
    assert each.verdict is Verdict.DEGRADED


def test_a_limit_that_was_measured_under_load_proves_nothing() -> None:
    measured = replace(HOST, copies=())
    assert verdict(101, COMPILERS, measured) is Verdict.UNKNOWN
    assert verdict(101, QUIET, measured) is Verdict.IMPOSSIBLE
    assert verdict(101, COMPILERS, HOST) is Verdict.IMPOSSIBLE


def verdict_of_waiting(
    value: float, waited: float | None, record: dict[str, object] | None, more: str = ""
) -> Verdict:
    """Judge a reading of host memory whose ranks waited for CPUs for a part of its time."""
    reading = Reading("bw", 1 << 20, value, cpu_wait_share=waited)
    facts = output(*([record] if record else []), more=more)
    facts.readings.append(reading)
    (each,) = excused([judge_reading(reading, lambda _: BAND)], loads(facts, HOST))
    return each.verdict


# The mean of a run of which others used the CPUs for a tenth of the time.
BURST = QUIET | {"own": 1.8, "others": 0.2, "waiting": 0.2, "wait": 0.1, "node_others": 0.2}


@cases(
    ("value", "waited", "record", "expected"),
    [
        # In a worse part of the run than the mean says.
        (0.005, 0.97, BURST, "unknown"),
        (0.005, None, BURST, "degraded"),
        (26, 0.5, BURST, "unknown"),
        (20, 0.5, BURST, "degraded"),
        (49, 0.15, BURST | {"others": 0.05, "waiting": 0.05, "node_others": 0.05}, "unknown"),
        # In a better part: others do not account for it.
        (20, 0.0, COMPILERS, "degraded"),
        (20, None, COMPILERS, "unknown"),
        (49, 0.05, COMPILERS, "degraded"),
        (60, 0.97, COMPILERS, "pass"),
        # Not for others: ranks, or a rank and its threads, share a CPU.
        (20, 1.0, QUIET | {"cpus": 1, "own": 1.0, "others": 0.02, "waiting": 1.0}, "degraded"),
        (20, 1.0, QUIET | {"own": 2.0, "others": 0.02, "waiting": 2.0}, "degraded"),
        (2, 1.0, COMPILERS | {"cpus": 1, "own": 0.13, "others": 0.8, "waiting": 1.8}, "degraded"),
        # Others stream memory on CPUs that the ranks do not use.
        (20, 0.0, NEIGHBOUR, "unknown"),
        (8, 0.0, NEIGHBOUR, "degraded"),
        # The hypervisor takes CPUs from ranks that run.
        (35, 0.0, QUIET | {"steal": 0.6}, "unknown"),
    ],
)
def test_a_reading_is_judged_by_its_own_waiting(
    value: float, waited: float | None, record: dict[str, object], expected: str
) -> None:
    assert verdict_of_waiting(value, waited, record) == expected


PLACE = '{{"event": "rank", "rank": {}, "host": "vm", "pid": 1, "node_rank": {}, "cpus": "{}"}}\n'


@pytest.mark.parametrize(
    ("cpus", "waited", "expected"),
    [
        (("0", "1"), 0.97, "unknown"),
        (("0-1", "0-1"), 0.97, "unknown"),
        (("0", "1"), 0.0, "degraded"),
        (("0", "0"), 0.97, "degraded"),
        (("0-1", "0", "1"), 0.97, "degraded"),
        (("", ""), 0.97, "degraded"),
        ((), 0.97, "degraded"),
    ],
)
def test_waiting_without_a_record(cpus: tuple[str, ...], waited: float, expected: str) -> None:
    places = "".join(PLACE.format(rank, rank, each) for rank, each in enumerate(cpus))
    assert verdict_of_waiting(1, waited, None, places) == expected


def with_stranger(**change: object) -> dict[str, object]:
    first, second = GPUS
    return QUIET | {"gpus": [first | change, second], "gpu_processes": [STRANGER]}


@pytest.mark.parametrize(
    ("change", "active"),
    [
        # Another process only copies: no utilisation, and NVLink traffic before the job.
        ({"link_gb_per_s": 330.0}, True),
        ({"percent": 87, "link_gb_per_s": 0.0}, True),
        ({}, True),  # counters that cannot be read show nothing
        ({"link_gb_per_s": 0.0}, False),  # an idle notebook
    ],
)
def test_another_process_on_a_gpu(change: dict[str, object], active: bool) -> None:
    record = with_stranger(**change)
    assert causes(record) == (["gpu-busy"] if active else [])
    assert verdict(28, record, GPU) == ("unknown" if active else "degraded")
    assert verdict(10, record, GPU) is Verdict.DEGRADED
    assert verdict(28, record, HOST) is Verdict.DEGRADED


@pytest.mark.parametrize(
    ("nbytes", "value", "expected"),
    [
        (1 << 30, 15, "degraded"),
        (1 << 26, 15, "unknown"),
        (1 << 26, 5, "degraded"),
        (1 << 20, 0.4, "unknown"),
        (1 << 20, 0.2, "degraded"),
    ],
)
def test_an_operation_waits_for_a_turn_of_another_process(
    nbytes: int, value: float, expected: str
) -> None:
    assert verdict(value, with_stranger(percent=99), GPU, nbytes) == expected


def test_a_short_measurement_falls_into_the_slices_of_others() -> None:
    """Between two H100, beside a spinning program on each CPU."""
    band = Expectation(limit=450, low=156, typical=169.6, high=183.1)
    light = COMPILERS | {"waiting": 0.3, "wait": 0.2, "own": 2.0, "others": 30, "cpus": 32}
    for measured_us, verdict_ in (
        (15_200.0, "unknown"),
        (200_000.0, "degraded"),
        (None, "degraded"),
    ):
        reading = Reading("bw", 1 << 20, 13.23, measured_us=measured_us)
        (each,) = excused([judge_reading(reading, lambda _: band)], loads(output(light), GPU))
        assert each.verdict == verdict_


@pytest.mark.parametrize(
    ("busy", "reading", "band"),
    [
        # Copies within an H100 beside products of large matrices in another process.
        (
            {"percent": 99, "mhz": 1350, "throttle": 4},
            Reading("bw", 1 << 28, 279),
            Expectation(limit=1676, low=1329, typical=1440, high=1560),
        ),
        # Messages between two H100 that another process copies between.
        (
            {"link_gb_per_s": 390.0},
            Reading("latency_us", 8, 273.6),
            Expectation(limit=1e-5, low=9.862, typical=10.27, high=13.35, unit="us"),
        ),
        (
            {"link_gb_per_s": 390.0},
            Reading("bw", 1 << 20, 60.31),
            Expectation(limit=450, low=156, typical=169.6, high=183.1),
        ),
    ],
)
def test_readings_of_h100_beside_another_process(
    busy: dict[str, object], reading: Reading, band: Expectation
) -> None:
    slow = judge_reading(reading, lambda _: band)
    assert slow.verdict is Verdict.DEGRADED
    (each,) = excused([slow], loads(output(with_stranger(**busy)), GPU))
    assert each.verdict is Verdict.UNKNOWN


def test_a_process_on_another_gpu_is_none_of_ours() -> None:
    record = with_stranger(link_gb_per_s=330.0)
    placed = '{"placed": {"rank": 0, "ranks": 1, "node_rank": 0, "host": "vm", "pid": 1, "cpus":'
    assert causes(record, more=f'{placed} "0-1", "visible": "0,1"}}}}\n') == ["gpu-busy"]
    assert causes(record, more=f'{placed} "0-1", "visible": "1"}}}}\n') == []
    device = "#  Rank  0 Group  0 Pid   2331 on         vm device  0 [{}] NVIDIA H200\n"
    assert causes(record, more=device.format("0000:00:06")) == ["gpu-busy"]
    assert causes(record, more=device.format("0000:00:07")) == []


@pytest.mark.parametrize(
    ("mhz", "value", "expected"), [(990, 20, "unknown"), (990, 15, "degraded")]
)
def test_a_clock_under_a_limit(mhz: float, value: float, expected: str) -> None:
    hot = GPUS[0] | {"mhz": mhz, "throttle": 0x40}
    record = QUIET | {"gpus": [hot, GPUS[1]]}
    assert causes(record) == ["gpu-throttled"]
    assert verdict(value, record, GPU) == expected
    (load,) = loads(output(record), GPU)
    assert load.summary == "GPU 0 of vm ran at 990 of 1980 MHz: heat (hardware)"


NEIGHBOUR_GPU = {"gpu": 2, "bus": "00000000:00:08.0", **IDLE_GPU, "percent": 90}
HOT = {"mhz": 990, "throttle": 0x44}


@pytest.mark.parametrize(
    ("gpus", "on", "expected"),
    [
        # Others use the GPU that is slow: they explain its clock.
        ([GPUS[0] | HOT | {"percent": 90}, GPUS[1]], 0, ["gpu-busy"]),
        ([GPUS[0] | HOT, GPUS[1]], 0, ["gpu-busy"]),  # whether it copies was not read
        # An idle notebook explains nothing.
        ([GPUS[0] | HOT | {"link_gb_per_s": 0.0}, GPUS[1]], 0, ["gpu-throttled"]),
        ([GPUS[0] | {"percent": 90}, GPUS[1] | HOT], 0, ["gpu-busy", "gpu-throttled"]),
        ([GPUS[0] | HOT, GPUS[1], NEIGHBOUR_GPU], 2, ["gpu-throttled"]),
        ([GPUS[0] | HOT, GPUS[1]], None, ["gpu-throttled"]),
    ],
)
def test_the_clock_of_a_gpu_that_others_use(
    gpus: list[dict[str, object]], on: int | None, expected: list[str]
) -> None:
    strangers = [] if on is None else [STRANGER | {"gpu": on}]
    record = QUIET | {"gpus": gpus, "gpu_processes": strangers}
    # The job runs on the first two GPUs.
    placed = '{"placed": {"rank": 0, "ranks": 1, "node_rank": 0, "host": "vm", "pid": 1, "cpus":'
    found = loads(output(record, more=f'{placed} "0-1", "visible": "0,1"}}}}\n'), GPU)
    assert [load.cause for load in found] == expected
    clock = "ran at 990 of 1980 MHz: power cap, heat (hardware)"
    assert any(clock in load.summary for load in found)
    busy = on is not None and "link_gb_per_s" not in gpus[0]
    assert ("PID 4021 ann python3 train.py on GPU" in found[-1].summary) == busy
    assert accounts_for(found, 0.25) == ("gpu-busy" in expected)
    assert accounts_for(found, 0.4)
    assert not accounts_for(found, 0.15)


def test_remedies_free_the_gpu_before_they_cool_it() -> None:
    assert "rises when the GPU is free" in CAUSES["gpu-busy"].remedy
    remedy = CAUSES["gpu-throttled"].remedy
    assert remedy.index("names programs on other GPUs") < remedy.index("let the GPU cool")


def test_a_clock_that_is_a_little_lower_is_no_excuse() -> None:
    assert causes(QUIET | {"gpus": [GPUS[0] | {"mhz": 1900, "throttle": 4}]}) == []


@pytest.mark.parametrize(
    ("share", "nodes", "busy"), [(0.5, 2, True), (0.05, 2, False), (0.5, 1, False)]
)
def test_a_network_port_that_others_use(share: float, nodes: int, busy: bool) -> None:
    port = {"name": "mlx5_0", "gb_per_s": 50 * share, "link_gb_per_s": 50}
    record = QUIET | {"nics": [port]}
    assert causes(record, replace(GPU, nodes=nodes)) == (["nic-busy"] if busy else [])


@pytest.mark.parametrize(
    ("during", "reading", "nodes", "busy"),
    [
        (47.0, 22.0, 2, True),  # twice what the run sends
        (24.0, 22.0, 2, False),
        (47.0, 46.0, 2, False),  # all of it is the run's
        (47.0, 22.0, 1, False),
        (0.0, 22.0, 2, False),
    ],
)
def test_a_port_that_carries_more_than_the_run_explains(
    during: float, reading: float, nodes: int, busy: bool
) -> None:
    port = {"name": "mlx5_0", "gb_per_s": 0, "link_gb_per_s": 50, "during_gb_per_s": during}
    osu = (
        f"# OSU MPI-CUDA Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n4194304 {reading * 1e3}\n"
    )
    for run in (replace(GPU, nodes=nodes), replace(HOST, nodes=nodes)):
        found = loads(output(QUIET | {"nics": [port]}, more=osu), run)
        assert [load.cause for load in found] == (["nic-busy"] if busy else [])
        assert not busy or found[0].summary.endswith("it moved at most 24.2")
    # Without a large reading nothing says what the run moved.
    assert not loads(output(QUIET | {"nics": [port]}), replace(GPU, nodes=nodes))


@pytest.mark.parametrize(
    ("throttled", "value", "expected"),
    [(1.0, 30, "unknown"), (1.0, 10, "degraded"), (0.05, 30, "degraded")],
)
def test_a_quota_of_cpu_time(throttled: float, value: float, expected: str) -> None:
    record = QUIET | {"own": 1.0, "quota": 1.0, "throttled": throttled}
    assert verdict(value, record) == expected
    found = loads(output(record), HOST)
    assert [load.cause for load in found] == (["cpu-quota"] if throttled > 0.1 else [])


def test_the_pressure_of_the_job_counts_without_counts_of_its_ranks() -> None:
    record = QUIET | {"wait": None, "waiting": None, "own": 1.0, "others": 0.5}
    assert verdict(30, record | {"job_pressure": 0.45}) is Verdict.UNKNOWN
    assert verdict(30, record | {"job_pressure": 0.01}) is Verdict.DEGRADED


def test_the_busiest_node_decides() -> None:
    found = loads(output(QUIET, COMPILERS | {"host": "n2"}), replace(HOST, nodes=2))
    assert [load.cause for load in found] == ["cpu-busy"]
    assert accounts_for(found, 0.5)


def test_the_evidence_names_processes() -> None:
    (load,) = loads(output(COMPILERS), HOST)
    assert "PID 12191 root cc1plus (0.38 CPUs)" in load.summary
    (load,) = loads(output(with_stranger(link_gb_per_s=330.0)), GPU)
    assert load.summary == (
        "PID 4021 ann python3 train.py on GPU 0 of vm (2600 MiB);"
        " GPU 0 before the job: 0 % busy, 330 GB/s over NVLink"
    )


NCCL = DATA / "h200x4/nccl_channels_1.log"


def test_explain_gives_the_verdict_of_the_check() -> None:
    """A fault that the output shows is named beside what others did."""
    text = NCCL.read_text()
    (alone,) = explain([Source.from_text("log", text)])
    assert (alone.verdict, [c.id for c in alone.causes]) == ("degraded", ["nccl-few-channels"])
    worst = min(j.reading.value / j.bound for j in alone.judged if j.bound)
    assert worst < 0.35  # less than one process on the GPUs accounts for
    record = json.dumps(with_stranger(link_gb_per_s=330.0)) + "\n"
    (busy,) = explain([Source.from_text("log", text + record)])
    assert (busy.verdict, [c.id for c in busy.causes]) == ("degraded", ["nccl-few-channels"])
    everyone = json.dumps(COMPILERS) + "\n"
    (unknown,) = explain([Source.from_text("log", text + everyone)])
    assert unknown.verdict == "unknown"
    assert [c.id for c in unknown.causes] == ["nccl-few-channels", "cpu-busy"]


def test_a_healthy_run_passes_on_a_busy_node() -> None:
    text = (DATA / "h200x4/nccl_healthy_a.log").read_text()
    (found,) = explain([Source.from_text("log", text + json.dumps(COMPILERS) + "\n")])
    assert (found.verdict, found.causes) == ("pass", ())


@pytest.mark.parametrize(
    "name", ["gpu_aware_no_cuda_ipc.log", "gpu_aware_tcp_only.log", "nccl_p2p_disabled.log"]
)
def test_a_wrong_transport_stays_degraded_on_a_busy_node(name: str) -> None:
    text = (DATA / "h200x4" / name).read_text()
    (alone,) = explain([Source.from_text("log", text)])
    (busy,) = explain([Source.from_text("log", text + json.dumps(COMPILERS) + "\n")])
    assert alone.verdict == busy.verdict == "degraded"
    assert [c.id for c in busy.causes] == [c.id for c in alone.causes]


@pytest.mark.parametrize(
    ("record", "verdict", "causes"),
    [
        # As recorded beside 17 other programs on two CPUs.
        (COMPILERS | {"own": 0.1503, "others": 1.822, "waiting": 1.837}, "unknown", {"cpu-busy"}),
        (COMPILERS, "failed", set()),
        (QUIET, "failed", set()),
    ],
)
def test_a_run_that_others_kept_from_ending_in_time(
    record: dict[str, object], verdict: str, causes: set[str]
) -> None:
    lines = (DATA / "h200x4/gpu_aware_healthy.log").read_text().splitlines()
    cut = [line for line in lines if '"event": "end"' not in line][:-3]
    log = "\n".join([*cut, json.dumps(record), "job timed out (120.0s > 120.0s)", ""])
    (found,) = explain([Source.from_text("log", log)])
    assert found.verdict == verdict
    assert {cause.id for cause in found.causes} == {"timeout"} | causes


RECORDED = [DATA / f"local-busy/link_matrix_{name}.log" for name in ("compile", "spin")]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_without_its_record_a_slow_run_is_accused(path: Path) -> None:
    """The last line of these logs is the record."""
    lines = path.read_text().splitlines()
    (found,) = explain([Source.from_text("log", "\n".join(lines) + "\n")])
    assert (found.verdict, [cause.id for cause in found.causes]) == ("unknown", ["cpu-busy"])
    idle = json.dumps(json.loads(lines[-1]) | {"others": 0.02, "node_others": 0.02})
    for ending in ([], [idle]):
        (found,) = explain([Source.from_text("log", "\n".join([*lines[:-1], *ending]) + "\n")])
        assert found.verdict in (Verdict.DEGRADED, Verdict.IMPOSSIBLE)
        assert "cpu-busy" not in {cause.id for cause in found.causes}


COPIED = sorted(DATA.glob("h200x2/nccl/busy_copy_*.log.gz"))


@pytest.mark.parametrize("path", COPIED, ids=lambda path: path.name)
def test_collectives_beside_a_copying_process(path: Path) -> None:
    """The runs are recorded, the line of the recorder is synthetic."""
    text = gzip.decompress(path.read_bytes()).decode()
    site = load("h200x4")
    (alone,) = explain([Source.from_text("log", text)], site=site)
    assert alone.verdict is Verdict.DEGRADED
    record = json.dumps(with_stranger(link_gb_per_s=330.0)) + "\n"
    (busy,) = explain([Source.from_text("log", text + record)], site=site)
    assert (busy.verdict, [cause.id for cause in busy.causes]) == ("unknown", ["gpu-busy"])


LOGS = sorted(path for path in DATA.glob("h200x4/*.log") if "synthetic" not in path.name)


@cases("path", some(LOGS, 2))
def test_a_busy_node_never_makes_a_run_better_than_unknown(path: Path) -> None:
    """Nor does it hide what a log shows, or touch a run that passes, fails or is impossible."""
    text = path.read_text()
    alone = explain([Source.from_text("log", text)])
    busy = explain([Source.from_text("log", text + json.dumps(COMPILERS) + "\n")])
    assert [each.verdict for each in busy[:-1]] == [each.verdict for each in alone[:-1]]
    before, after = alone[-1], busy[-1]
    if before.verdict is Verdict.DEGRADED:
        assert after.verdict in (Verdict.UNKNOWN, Verdict.DEGRADED)
        shown = {c.id for c in before.causes if c.id != "below-band-unexplained"}
        assert shown <= {c.id for c in after.causes}
    else:
        assert after.verdict is before.verdict
