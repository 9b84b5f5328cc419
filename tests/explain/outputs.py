# SPDX-License-Identifier: MIT
"""Outputs in the form of each tool, for the tests beside this module."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from busbar import site as sites
from busbar.engine.collect import collect
from busbar.engine.run import Run
from busbar.explain import Explanation, Source, explain
from busbar.explain.core import explain_output
from busbar.explain.rulebook import PATTERNS
from busbar.verdict import Verdict, combined

load = cache(sites.load)
"""Sites are read once; nothing changes them."""

BANNER = (
    "# OSU MPI-CUDA Bandwidth Test v7.4\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n"
)
HOST_BANNER = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n"
ROW = "{size:>12} {count:>12} float sum -1 {time} {algbw} {busbw} 0 {time} {algbw} {busbw} 0\n"


def of_check(
    sources: Sequence[Source], verdict: Verdict, site: str | None, engine: str | None = None
) -> list[Explanation]:
    """The runs in ``sources`` as a check explains them, which has found a verdict."""
    known = Run(site=load(site) if site else None, engine=engine)
    outputs = [each for each in collect(sources, PATTERNS) if not each.empty]
    return [explain_output(each, known, verdict, asked={}) for each in outputs]


def run(
    *texts: str, site: str | None = None, verdict: Verdict | None = None, **options: Any
) -> Explanation:
    """The one run in ``texts``, each a file of the job."""
    sources = [Source.from_text(f"file{i}", text) for i, text in enumerate(texts)]
    (found,) = (
        of_check(sources, verdict, site)
        if verdict
        else explain(sources, site=load(site) if site else None, **options)
    )
    return found


def steps(*texts: str, site: str | None = None) -> list[Explanation]:
    """All steps in ``texts``, each a file of the job."""
    sources = [Source.from_text(f"file{i}", text) for i, text in enumerate(texts)]
    return explain(sources, site=load(site) if site else None)


def verdict(*texts: str, site: str | None = None) -> Verdict:
    """The verdict on all steps in ``texts``."""
    return combined(each.verdict for each in steps(*texts, site=site))


def ids(*found: Explanation) -> set[str]:
    return {cause.id for each in found for cause in each.causes}


def nccl_table(
    busbw: dict[int, float],
    *,
    ranks: int = 4,
    nodes: int = 1,
    gpu: str = "NVIDIA H200",
    last: bool = True,
) -> str:
    """An all-reduce table as nccl-tests prints it."""
    text = f"# nThread 1 nGpus 1 minBytes 8 maxBytes {max(busbw)} step: 2(factor)\n"
    per_node = ranks // nodes
    for rank in range(ranks):
        text += (
            f"#  Rank {rank:2} Group  0 Pid {1000 + rank} on node{rank // per_node} device"
            f" {rank % per_node:2} [0x{rank % per_node:02x}] {gpu}\n"
        )
    for size, rate in busbw.items():
        algbw = rate / (2 * (ranks - 1) / ranks)
        text += ROW.format(
            size=size,
            count=size // 4,
            time=f"{size / algbw / 1e3:.1f}",
            algbw=f"{algbw:.2f}",
            busbw=f"{rate:.2f}",
        )
    return text + ("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n" if last else "")
