# SPDX-License-Identifier: MIT
"""Healthy outputs with one field altered, for `test_altered.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from busbar.engine.launch import powers

from .faults import SIZE, Kind, first
from .kinds import COLLECTIVE, GPU_AWARE, KINDS, NCCL_LOG, PAIR, XCCL

_TOKEN = re.compile(r"[A-Za-z_][\w./;-]*|-?\d+(?:\.\d+)?(?:e-?\d+)?")
_WORDS = {
    "float": "half",
    "sum": "max",
    "none": "sum",
    "OK": "FAILED",
    "Pass": "Fail",
    "MPI": "NCCL",
    "MPI-CUDA": "MPI",
    "MPI_CHAR": "MPI_FLOAT",
    "MB/s": "GB/s",
    "us": "ms",
    "usec": "nsec",
    "MB/sec": "GB/sec",
    "cuda": "host",
    "cuda_ipc/cuda": "tcp/eth0",
    "bandwidth": "latency",
    "busbw": "bandwidth",
    "Bandwidth": "Latency",
    "Latency": "Bandwidth",
    "vm": "vn",
}
"""What a word becomes; other words get a letter more."""


class Altered(NamedTuple):
    """An output in which one field differs from a healthy one."""

    line: str
    """The line before."""
    what: str
    """What was done to it."""
    text: str


def _numbers(token: str) -> list[str]:
    if "." in token:
        places = len(token.partition(".")[2])
        return [f"{float(token) * by:.{places}f}" for by in (0.5, 3)]
    value = int(token)
    return ["1", "0.9", "nan", "inf"] if not value else [str(value * 2), str(value + 1)]


def _fields(line: str) -> Iterator[tuple[str, str]]:
    """Each alteration of a field: what it was and became, and the line after."""
    for match in _TOKEN.finditer(line):
        word = match[0]
        number = word[0].isdigit() or word[0] == "-"
        for new in _numbers(word) if number else [_WORDS.get(word, word + "x")]:
            if new != word:
                yield f"{word} to {new}", line[: match.start()] + new + line[match.end() :]


def alterations(text: str) -> Iterator[Altered]:
    """Yield the text with each field altered, each line left out, and each line repeated."""
    lines = text.splitlines()
    # Of lines that differ in their numbers only, the last.
    last = {re.sub(r"[\d.]+", "0", line): at for at, line in enumerate(lines)}
    for at in sorted(last.values()):
        line = lines[at]
        if not line.strip(" #") or line.startswith("$ "):
            continue
        before, after = lines[:at], lines[at + 1 :]
        for what, new in _fields(line):
            yield Altered(line, what, "\n".join([*before, new, *after]))
        yield Altered(line, "left out", "\n".join([*before, *after]))
        yield Altered(line, "repeated", "\n".join([*before, line, line, *after]))


_WAY = re.compile(r"(?:ep_cfg|via ).*")


def brief(text: str) -> str:
    """The text without log lines that do not say how the data went, or say it again."""
    kept: list[str] = []
    ways: set[str] = set()
    for line in text.splitlines():
        if " UCX  " in line or "NCCL INFO" in line or line.startswith("[debug]"):
            way = _WAY.search(line)
            if not way or way[0] in ways:
                continue
            ways.add(way[0])
        kept.append(line)
    return "\n".join(kept)


def _xccl(operation: str) -> Kind:
    launch = replace(
        XCCL.launch, bench=operation, command=(f"{operation}_perf", *XCCL.launch.command[1:])
    )
    table = first(f"h200x4-prefix/xccl_{operation}_nccl-tests-2.19.6.log")
    return replace(XCCL, launch=launch, text=table + NCCL_LOG)


def _osu(name: str, sizes: tuple[int, ...]) -> Kind:
    launch = replace(
        PAIR.launch, bench=name, sizes=sizes, command=(name, *PAIR.launch.command[1:])
    )
    return replace(PAIR, launch=launch, text=first(f"h200x4-prefix/{name}_osu-7.4.log"))


HEALTHY: dict[str, Kind] = {
    **{name: _xccl(name) for name in (*("all_reduce", "all_gather", "alltoall", "broadcast"),)},
    "osu_bw": PAIR,
    "osu_bibw": _osu("osu_bibw", (SIZE,)),
    "osu_latency": _osu("osu_latency", powers(8, 1 << 16)),
    "osu_bcast": COLLECTIVE,
    **{
        name: KINDS[name]
        for name in (
            *("pt2pt_pairs", "pt2pt_data"),
            *("framework", "memory", "fabric_ucx_gpu", "fabric_ucx", "fabric_libfabric"),
        )
    },
    "gpu_aware": GPU_AWARE,
}
"""By the program; every recorded run of which a check has the like."""
