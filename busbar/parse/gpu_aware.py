# SPDX-License-Identifier: MIT
"""Reads the JSON lines of ``gpu_aware`` (reframe_checks/src), among whatever else a job prints."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Start:
    """What was started: the MPI and UCX that really ran, and how many ranks were asked for."""

    version: str
    backend: str
    """``host``, ``cuda`` or ``hip``."""
    ranks: int
    asked_ranks: int
    mpi: str
    ucx: str
    """Version of the UCX loaded into the process; empty when MPI uses none."""
    gpu_driver: str
    """Version of the kernel driver and of the API that it offers; empty on the host back end."""
    statistic: str
    """``mean`` or ``best``: what the readings are over their windows."""


@dataclass(frozen=True)
class Rank:
    """Where a rank ran."""

    rank: int
    host: str
    pid: int
    node_rank: int
    device: str
    """PCI bus id, empty on the host back end."""
    device_name: str
    cpus: str


@dataclass(frozen=True)
class Reading:
    """One measurement of one ordered pair."""

    metric: str
    """``bandwidth`` (value in GB/s) or ``latency`` (value in us)."""
    source: int
    target: int
    buffers: str
    nbytes: int
    value: float
    wrong: int
    """Bytes that arrived wrong."""
    driver_us: float | None = None
    """Beside a latency between GPUs: the shortest copy within a GPU, by the faster of both."""


@dataclass(frozen=True)
class Ceiling:
    """What two processes reach without MPI: a plain copy (GB/s) or a flag between cores (us)."""

    method: str
    """``memcpy``, ``process_vm_readv`` or ``flag``."""
    source: int
    target: int
    nbytes: int
    value: float | None
    """None where the method is refused here; ``error`` says why."""
    error: str = ""


@dataclass(frozen=True)
class Check:
    """One correctness test: the bytes that arrived wrong."""

    operation: str
    buffers: str
    source: int | None
    target: int | None
    nbytes: int
    wrong: int


@dataclass(frozen=True)
class GpuAwareRun:
    """All that one launch printed. More than one start means that the launcher made singletons."""

    starts: tuple[Start, ...] = ()
    ranks: tuple[Rank, ...] = ()
    readings: tuple[Reading, ...] = ()
    ceilings: tuple[Ceiling, ...] = ()
    checks: tuple[Check, ...] = ()
    errors: tuple[str, ...] = ()
    complete: bool = False
    """Whether the last line was printed: without it the run was cut."""


@dataclass
class _Collected:
    starts: list[Start] = field(default_factory=list)
    ranks: list[Rank] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    ceilings: list[Ceiling] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    complete: bool = False

    def add(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "start":
                self.starts.append(Start(**{n: event[n] for n in Start.__dataclass_fields__}))
            case "rank":
                self.ranks.append(Rank(**{n: event[n] for n in Rank.__dataclass_fields__}))
            case "reading":
                driver = event.get("driver_us")
                value = event["gb_per_s"] if event["metric"] == "bandwidth" else event["us"]
                self.readings.append(
                    Reading(
                        event["metric"],
                        event["from"],
                        event["to"],
                        event["buffers"],
                        event["bytes"],
                        float(value),
                        event["wrong"],
                        None if driver is None else float(driver),
                    )
                )
            case "copy":
                self.ceilings.append(
                    Ceiling(
                        event["method"],
                        event["from"],
                        event["to"],
                        event["bytes"],
                        event.get("gb_per_s"),
                        event.get("error", ""),
                    )
                )
            case "flag":
                self.ceilings.append(Ceiling("flag", event["from"], event["to"], 8, event["us"]))
            case "check":
                self.checks.append(
                    Check(
                        event["operation"],
                        event["buffers"],
                        event.get("from"),
                        event.get("to"),
                        event["bytes"],
                        event["wrong"],
                    )
                )
            case "error":
                self.errors.append(event["text"])
            case "end":
                self.complete = True
            case "idle":
                pass  # read by the tests of the program itself
            case unknown:
                raise ValueError(f"unknown event {unknown!r}")


def parse(lines: Iterable[str]) -> GpuAwareRun:
    """The run in ``lines``; lines that are not JSON objects of the program are left out.

    A line that begins as the program's and cannot be read raises ``ValueError`` with its number,
    unless it is the last one: a killed job may end in the middle of a line.
    """
    got = _Collected()
    broken: ValueError | None = None
    for number, line in enumerate(lines, 1):
        start = line.find('{"event"')
        if start < 0:
            continue
        if broken:
            raise broken
        try:
            got.add(json.loads(line[start:]))
        except (ValueError, KeyError, TypeError) as error:
            broken = ValueError(f"line {number} is not a line of gpu_aware: {error}")
            broken.__cause__ = error
    return GpuAwareRun(
        tuple(got.starts),
        tuple(got.ranks),
        tuple(got.readings),
        tuple(got.ceilings),
        tuple(got.checks),
        tuple(got.errors),
        got.complete,
    )
