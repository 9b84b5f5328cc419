# SPDX-License-Identifier: MIT
"""Mutation of the checks: each assertion of `minimum.yaml`, taken out, lets a fault through.

A healthy record is broken in one way; all assertions together must notice it, and without the one
assertion it must pass. So each is needed, and none can be lost without a test that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from busbar import site as sites
from busbar.check import assertions
from busbar.check.bench import judge
from busbar.check.launch import Launch, powers, show, split
from busbar.check.unstaged import expectation as unstaged
from busbar.expect import collective, point_to_point
from busbar.explain.model import Reading
from busbar.verdict import Expectation, Verdict, worst

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
MINIMUM: dict[str, list[str]] = yaml.safe_load((HERE / "minimum.yaml").read_text())
SITE = sites.load("h200x4")
SIZE = 1 << 24

Break = Callable[[str], str]


def first(name: str) -> str:
    """The first launch of a record."""
    lines = (DATA / "h200x4-prefix" / name).read_text().splitlines()
    return "\n".join(split(lines)[0])


def pair(launch: Launch, reading: Reading) -> Expectation:
    return point_to_point(SITE, bench="osu_bw", src=0, dst=1, nbytes=reading.nbytes)


def staged(launch: Launch, reading: Reading) -> Expectation:
    return unstaged(
        SITE, operation="broadcast", ranks=4, nodes=1, partition="gpu", nbytes=reading.nbytes
    )


def reduced(launch: Launch, reading: Reading) -> Expectation:
    return collective(SITE, bench="all_reduce", nbytes=reading.nbytes, harness="nccl-tests")


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

    launch: Launch
    text: str
    expect: Callable[[Launch, Reading], Expectation]
    breaks: dict[str, Break]
    derive: float = 0.0
    """Bus bandwidth over size / time, for records that hold latencies."""


CUT = {"metrics": replaced("exit_status=0", "")}
OSU_ROW = r"^\d+ +([\d.]+)$"
OSU = {
    "ranks": replaced('"ranks": 2', '"ranks": 1'),
    "placement": replaced('"visible": "0,1"', '"visible": "0,0"'),
    "transport": replaced("cuda_ipc/cuda", "cuda_copy/cuda"),
    "low": scaled(OSU_ROW, 0.8),
    "impossible": scaled(OSU_ROW, 1.4),
    **CUT,
}
NCCL_ROW = r"^ +\d+ +\d+ +float +sum +-1 +[\d.]+ +[\d.]+ +([\d.]+) +0 +[\d.]+ +[\d.]+ +([\d.]+) +0"
COPIES = r'"gb_per_s": ([\d.]+)'
NCCL_LOG = "\n".join(
    line
    for line in (DATA / "h200x4/nccl_healthy_a.log").read_text().splitlines()
    if " via P2P" in line and line.startswith("vm:")
)
KINDS = {
    "pt2pt": Kind(
        Launch(
            *("osu_bw", ("osu_bw",), 2, (SIZE,), (0, 1)),
            transports=("cuda_ipc",),
        ),
        first("osu_bw_osu-7.4.log"),
        pair,
        OSU,
    ),
    "pt2pt_data": Kind(
        Launch(
            *("osu_bw", ("osu_bw", "-c"), 2, powers(1 << 16, 1 << 20), (0, 1)),
            transports=("cuda_ipc",),
            validated=True,
            bands=False,
        ),
        first("osu_bw_validated_osu-7.4.log"),
        pair,
        {**OSU, "data": replaced("Pass", "Fail")},
    ),
    "collective": Kind(
        Launch(
            *("osu_bcast", ("osu_bcast",), 4, powers(1 << 22, 1 << 26), (0, 1, 2, 3)),
            transports=("cuda_ipc",),
        ),
        first("osu_bcast_osu-7.4.log"),
        staged,
        {
            "ranks": replaced('"ranks": 4', '"ranks": 1'),
            "transport": replaced("cuda_ipc/cuda", "cuda_copy/cuda"),
            "low": scaled(OSU_ROW, 3),
            "impossible": scaled(OSU_ROW, 0.3),
            **CUT,
        },
        derive=1.0,
    ),
    "xccl": Kind(
        Launch(
            *("all_reduce", ("all_reduce_perf",), 4, powers(1 << 20, 1 << 30, 4), (0, 1, 2, 3)),
            transports=("P2P", "NVLS"),
            log="nccl",
            validated=True,
            end=True,
        ),
        first("xccl_all_reduce_nccl-tests-2.19.6.log") + "\n" + NCCL_LOG,
        reduced,
        {
            "ranks": replaced('"ranks": 4', '"ranks": 1'),
            "placement": replaced("[0000:00:07]", "[0000:00:06]"),
            "transport": replaced("via P2P/CUMEM", "via SHM/direct/direct"),
            "data": replaced("Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED"),
            "low": scaled(NCCL_ROW, 0.8),
            "impossible": scaled(NCCL_ROW, 1.5),
            **CUT,
        },
    ),
    "memory": Kind(
        Launch(
            *("memory", ("memory", "4", "256M"), 1, (1 << 28,)),
            placed=False,
            validated=True,
            end=True,
        ),
        first("memory_1.0.log"),
        lambda launch, reading: point_to_point(
            SITE,
            bench="osu_bw",
            src=reading.source or 0,
            dst=reading.target or 0,
            nbytes=reading.nbytes,
        ),
        {
            "data": replaced('"wrong": 0}', '"wrong": 5}'),
            "low": scaled(COPIES, 0.8),
            "impossible": scaled(COPIES, 1.5),
            **CUT,
        },
    ),
}


def verdict(kind: Kind, text: str) -> Verdict:
    """What the check makes of an output."""
    shown = show("record", text.splitlines())
    if kind.derive:
        shown.facts.readings = [
            Reading("busbw", r.nbytes, r.gb_per_s * kind.derive) for r in shown.facts.readings
        ]
    results = judge("check", kind.launch, shown, kind.expect)
    return worst(result.verdict for result in results)


@pytest.mark.parametrize("name", KINDS)
def test_the_record_is_healthy(name):
    assert verdict(KINDS[name], KINDS[name].text) is Verdict.PASS


@pytest.mark.parametrize(
    ("name", "assertion"), [(name, each) for name, asked in MINIMUM.items() for each in asked]
)
def test_only_this_assertion_notices(name, assertion, monkeypatch):
    kind = KINDS[name]
    broken = kind.breaks[assertion](kind.text)
    assert broken != kind.text
    assert verdict(kind, broken) is not Verdict.PASS
    if assertion in assertions.ASSERTIONS:
        monkeypatch.delitem(assertions.ASSERTIONS, assertion)
    else:
        lost = {"low": Verdict.DEGRADED, "impossible": Verdict.IMPOSSIBLE}[assertion]
        whole = Expectation.judge

        def without(self: Expectation, value: float) -> Verdict:
            found = whole(self, value)
            return Verdict.PASS if found is lost else found

        monkeypatch.setattr(Expectation, "judge", without)
    assert verdict(kind, broken) is Verdict.PASS


def test_every_assertion_is_on_the_list():
    asked = {each for names in MINIMUM.values() for each in names}
    assert asked == {*assertions.ASSERTIONS, "low", "impossible"}
