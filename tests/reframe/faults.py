# SPDX-License-Identifier: MIT
"""What a healthy record of a check and its faults are made of; `kinds.py` puts them together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from busbar import site as sites
from busbar.expect import NoExpectation, collective, multi_pair, point_to_point
from busbar.expect.expectation import Expectation
from busbar.expect.host_link import expectation as host_link
from busbar.expect.unstaged import expectation as unstaged
from busbar.judge import gpu_aware as gpu_judge
from busbar.judge.assertions import Problem
from busbar.judge.launch import BenchLaunch, LaunchOutput, split
from busbar.output.reading import Reading
from busbar.parse.ucx_perftest import bandwidth

DATA = Path(__file__).parents[1] / "data"
SITE = sites.load("h200x4")
CRAY = sites.load("mi250x-cray")
MI300X = sites.load("mi300x")
SIZE = 1 << 24
GIB = 1 << 30

Break = Callable[[str], str]
Expect = Callable[[BenchLaunch, Reading], Expectation]


def none(launch: BenchLaunch, reading: Reading) -> Expectation:
    raise NoExpectation("none is known")


def pair(launch: BenchLaunch, reading: Reading) -> Expectation:
    return point_to_point(SITE, bench="osu_bw", src=0, dst=1, nbytes=reading.nbytes)


def pairs(launch: BenchLaunch, reading: Reading) -> Expectation:
    return multi_pair(SITE, nbytes=reading.nbytes, ranks=4)


def host(launch: BenchLaunch, reading: Reading) -> Expectation:
    return host_link(
        SITE,
        src=0,
        dst=1,
        nbytes=reading.nbytes,
        buffers="H D",
        lane="ucx-1.14",
        environment=sites.environment(SITE, lane="ucx-1.14"),
        partition="gpu",
    )


def nodes(launch: BenchLaunch, reading: Reading) -> Expectation:
    return point_to_point(CRAY, bench="osu_bw", src=0, dst=0, nbytes=reading.nbytes, nodes=2)


def staged(launch: BenchLaunch, reading: Reading, operation: str = "broadcast") -> Expectation:
    if reading.kind == "latency_us":
        return none(launch, reading)
    return unstaged(
        SITE,
        operation=operation,
        ranks=launch.ranks,
        nodes=1,
        partition="gpu",
        nbytes=reading.nbytes,
    )


def between_two(launch: BenchLaunch, reading: Reading) -> Expectation:
    return unstaged(
        SITE, operation="sendrecv", ranks=2, nodes=1, partition="gpu", nbytes=reading.nbytes
    )


def reduced(launch: BenchLaunch, reading: Reading) -> Expectation:
    return collective(SITE, bench="all_reduce", nbytes=reading.nbytes, harness="nccl-tests")


def by_torch(launch: BenchLaunch, reading: Reading) -> Expectation:
    return collective(SITE, bench=reading.operation, nbytes=reading.nbytes, harness="pytorch")


def copied(launch: BenchLaunch, reading: Reading) -> Expectation:
    source, target = reading.source or 0, reading.target or 0
    return point_to_point(SITE, bench="osu_bw", src=source, dst=target, nbytes=reading.nbytes)


def by_rccl(
    launch: BenchLaunch, reading: Reading, environment: dict[str, str] | None = None
) -> Expectation:
    settings = dict(launch.environment) if environment is None else environment
    found = _by_rccl(launch.ranks, reading.nbytes, tuple(settings.items()))
    if isinstance(found, NoExpectation):
        raise found
    return found


@cache
def _by_rccl(
    ranks: int, nbytes: int, settings: tuple[tuple[str, str], ...]
) -> Expectation | NoExpectation:
    """The bound of 64 ranks takes its time."""
    try:
        return collective(
            MI300X,
            bench="all_reduce",
            nbytes=nbytes,
            ranks=ranks,
            harness="rccl-tests",
            environment=dict(settings),
            partition="spx" if ranks < 8 else "cpx",
        )
    except NoExpectation as none_known:
        return none_known


def first(name: str) -> str:
    """The first launch of a record."""
    return "\n".join(split((DATA / name).read_text().splitlines())[0])


def placed(name: str, ranks: int, *hosts: str) -> str:
    """A record without a word of where its ranks were, which `placed.sh` would have said."""
    per_node = ranks // len(hosts)
    lines = [
        f'{{"placed": {{"rank": {n}, "ranks": {ranks}, "node_rank": {n % per_node}, "host":'
        f' "{hosts[n // per_node]}", "pid": {n}, "cpus": "0", "visible": ""}}}}'
        for n in range(ranks)
    ]
    text = (DATA / name).read_text(errors="backslashreplace")
    return "\n".join([*lines, *[x for x in text.splitlines() if not x.startswith("$ ")]])


def scaled(pattern: str, by: float) -> Break:
    """The numbers in the groups of ``pattern`` times ``by``."""

    def change(text: str) -> str:
        def scale(match: re.Match[str]) -> str:
            whole = match[0]
            for group in range(match.re.groups, 0, -1):
                at, end = (place - match.start() for place in match.span(group))
                whole = f"{whole[:at]}{float(match[group]) * by:.4f}{whole[end:]}"
            return whole

        return re.sub(pattern, scale, text, flags=re.MULTILINE)

    return change


def replaced(old: str, new: str) -> Break:
    return lambda text: text.replace(old, new)


@dataclass(frozen=True)
class Kind:
    """A healthy record of one kind of check, and how it is broken."""

    launch: BenchLaunch
    text: str
    expect: Expect
    breaks: dict[str, Break]
    derive: Callable[[LaunchOutput], list[Reading]] = lambda shown: []
    also: Callable[[BenchLaunch, LaunchOutput], Iterator[Problem]] = lambda launch, shown: iter(())
    """What the check asks beside what all are asked."""


@dataclass(frozen=True)
class GpuAwareKind:
    """The same for checks that run our own program."""

    asked: gpu_judge.GpuAwareRequest
    text: str
    breaks: dict[str, Break]


def busbw(share: float) -> Callable[[LaunchOutput], list[Reading]]:
    """Bus bandwidths of a record that holds latencies: ``share`` times size over time."""
    return lambda shown: [
        Reading("busbw", r.nbytes, r.gb_per_s * share)
        for r in shown.facts.readings
        if r.kind == "latency_us" and r.nbytes == 1 << 26
    ]


def perftest(shown: LaunchOutput) -> list[Reading]:
    rate = bandwidth(shown.text)
    return [Reading("bw", 1 << 26, rate)] if rate else []
