# SPDX-License-Identifier: MIT
"""What other programs on GPUs and network ports, and low clocks, excuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busbar.engine.busy import accounts_for, excused, loads
from busbar.engine.reading import Reading
from busbar.engine.verdicts import judge_reading
from busbar.expect.expectation import Expectation
from busbar.explain.catalog import CAUSES
from busbar.verdict import Verdict

from .test_busy import COMPILERS, GPU, HOST, QUIET, causes, output, verdict

IDLE_GPU = {"percent": 0, "mhz": 0, "max_mhz": 1980, "throttle": 0}
GPUS = [
    {"gpu": 0, "bus": "00000000:00:06.0", **IDLE_GPU},
    {"gpu": 1, "bus": "00000000:00:07.0", **IDLE_GPU},
]
STRANGER = {"pid": 4021, "user": "ann", "command": "python3 train.py", "gpu": 0, "mib": 2600}


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


def test_the_evidence_names_processes() -> None:
    (load,) = loads(output(COMPILERS), HOST)
    assert "PID 12191 root cc1plus (0.38 CPUs)" in load.summary
    (load,) = loads(output(with_stranger(link_gb_per_s=330.0)), GPU)
    assert load.summary == (
        "PID 4021 ann python3 train.py on GPU 0 of vm (2600 MiB);"
        " GPU 0 before the job: 0 % busy, 330 GB/s over NVLink"
    )
