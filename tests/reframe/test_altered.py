# SPDX-License-Identifier: MIT
"""No output with one altered field passes, but for those that `ALLOWED` names with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cases import cases, some

from .altered import HEALTHY, Altered, alterations, brief
from .test_minimum import verdict


class Allowed(NamedTuple):
    """Alterations that may pass."""

    line: str
    """A pattern of the lines before."""
    what: str
    """A pattern of what was done; empty for anything."""
    reason: str


_KEY = r"^[a-z_]+ to \w+$"
ALLOWED = (
    Allowed(r"^# (synthetic|Using|nccl-tests)", "", "remarks and versions: nothing asks for them"),
    Allowed(r"^# *(Size|Datatype)", r"left out|repeated|x$|Latency|Bandwidth", "a title"),
    Allowed(r"^#  +(out-of|\(B\)|size)", "", "the units follow from size, time and rate"),
    Allowed(r"^# (Coll|\[ pairs)", r"left out|repeated|x$", "not all versions print it"),
    Allowed(r"^# nThr", r"repeated|x$", "the numbers are read by their names"),
    Allowed(r"^# nThread", r"^[01] to", "warm-up and alignment: nothing asks for them"),
    Allowed(r"^#  Rank", r"^\d+ to|^NVIDIA|^H200|repeated", "no two may have the same GPU"),
    Allowed(r"^(# Out of|# Avg|exit_status)", "repeated", "it says the same again"),
    Allowed(r"^# OSU", r"v7.4|x$|repeated", "the version; OSU finds no GPU of another vendor"),
    Allowed(r" UCX  ", "", "times and places in its source; transports have a test below"),
    Allowed(r"NCCL INFO", "", "channels and processes; transports have a test below"),
    Allowed(
        r"placed|\"(rank|idle)\"", rf"^-?[\d.e-]+ to|{_KEY}|left|repeated|x$", "where ranks ran"
    ),
    Allowed(r"\"start\"", rf"^[\d.]+ to|{_KEY}|left|repeated|x$|MPI|^cuda", "versions"),
    Allowed(r"^[|+]", r"left out|repeated|x$|usec|^50", "frames; units have a test below"),
    Allowed(r"^Final", r"^[\d.]+ to|repeated", "averages of the last interval"),
    Allowed(r"^\d+ +[\d.]+( |$)", r"^[\d.]+ to \d+\.\d+$", "in its band, or no band is known"),
    Allowed(r"\"reading\"", rf"^[\d.]+ to \d+\.\d+$|{_KEY}|^[DH] ", "the same; other keys"),
    Allowed(r"\"(end|copy|flag|check)\"", rf"^[\d.]+ to|{_KEY}|repeated", "times"),
    Allowed(r"^(fi_info| +\w+:|bytes )", "", "test_minimum changes the provider"),
    Allowed(r'"busy"', "", "what else used the node, which an output may lack"),
    Allowed(r'"latency"', r"^\d+ to \d+$", "the number of round trips, which it chooses"),
    Allowed(r"\"verified\"", r"^\d{2,3} to", "the number of comparisons, which it chooses"),
    Allowed(r"\"window\"", "^64 to", "the number of messages in flight, which it chooses"),
    Allowed(r"^1m ", "401|Mxf|0.00", "what is cut to one or two digits"),
)
_EVERY = {"gpu_aware": 16}
"""Of a long output still fewer alterations: the whole test is to take seconds."""


def allowed(altered: Altered) -> bool:
    return any(
        re.search(a.line, altered.line) and re.search(a.what, altered.what) for a in ALLOWED
    )


def altered_outputs(name: str) -> list[Altered]:
    return some(alterations(brief(HEALTHY[name].text)), _EVERY.get(name, 3))


@pytest.mark.parametrize("name", HEALTHY)
def test_an_altered_output_does_not_pass(name: str, tmp_path: Path) -> None:
    kind = HEALTHY[name]
    assert not verdict(kind, brief(kind.text), tmp_path).is_problem
    passed = [
        altered
        for altered in altered_outputs(name)
        if not allowed(altered) and not verdict(kind, altered.text, tmp_path).is_problem
    ]
    assert [(altered.what, altered.line) for altered in passed] == []


def test_there_are_enough_of_them() -> None:
    counted = [a for name in HEALTHY for a in altered_outputs(name) if not allowed(a)]
    assert len(counted) > 300


@cases("name", [n for n, k in HEALTHY.items() if "cuda_ipc" in k.text])
def test_each_endpoint_goes_by_a_fast_way(name: str, tmp_path: Path) -> None:
    """One that is slow among others that are not."""
    kind = HEALTHY[name]
    if kind.launch.log == "nccl":
        return
    line = "[1795263870.0] [vm:1:0]  ucp_worker.c:1783 UCX  INFO    ep_cfg[9]: tag(tcp/eth0)"
    assert verdict(kind, f"{line}\n{brief(kind.text)}", tmp_path).is_problem


@cases("units", ["GB/s", "MiB/s", "Gb/s", "KB/s"])
@cases("name", ["osu_bw", "osu_bibw", "pt2pt_pairs", "fabric_ucx_gpu"])
def test_other_units_are_refused(name: str, units: str, tmp_path: Path) -> None:
    kind = HEALTHY[name]
    assert verdict(kind, kind.text.replace("MB/s", units), tmp_path).is_problem


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        *(("all_gather", "all_reduce"), ("all_gather", "alltoall"), ("alltoall", "all_gather")),
        *(("all_reduce", "all_gather"), ("broadcast", "all_reduce"), ("osu_bw", "osu_bibw")),
        *(("osu_bibw", "osu_bw"), ("osu_bw", "osu_latency"), ("osu_bcast", "osu_bw")),
    ],
)
def test_the_output_of_another_program_fails(asked: str, given: str, tmp_path: Path) -> None:
    kind, other = HEALTHY[asked], HEALTHY[given]
    assert verdict(kind, other.text, tmp_path).is_problem
    # Also under the other name; all_gather and alltoall have the same columns.
    if {asked, given} != {"all_gather", "alltoall"}:
        assert verdict(kind, other.text.replace(given, asked), tmp_path).is_problem
