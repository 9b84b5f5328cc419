# SPDX-License-Identifier: MIT
"""Causes outside the job: other programs, limits of heat and power, one slow GPU."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from busbar.engine.reading import Note, Reading
from busbar.explain.catalog import cause, note
from busbar.explain.rules import Context, Explains, Finding
from busbar.parse import numbers
from busbar.units import format_bytes
from busbar.verdict import Verdict

_BUSY_PERCENT = 10


@cause("cpu-busy", "cpu-quota", "gpu-busy", "gpu-throttled", "nic-busy")
def busy(context: Context) -> Iterator[Finding]:
    """The record of the job shows others, and readings below their band that they account for."""
    if context.excused:
        for load in context.loads:
            lines, summary = [load.evidence], load.summary
            waited = _longest_waiting(context) if load.most_waiting is not None else None
            if waited and waited.evidence:
                share = waited.cpu_wait_share or 0.0
                lines.append(waited.evidence)
                summary += (
                    f"; {waited.source}->{waited.target} at {format_bytes(waited.nbytes)}"
                    f" waited for a CPU for {share:.0%} of its time"
                )
            evidence = tuple(dict.fromkeys(lines))
            yield Finding(load.cause, "likely", evidence, summary, Explains.LOAD)


def _longest_waiting(context: Context) -> Reading | None:
    """Return the reading that is ``unknown`` and whose ranks waited longest for CPUs."""
    readings = [j.reading for j in context.judged if j.verdict is Verdict.UNKNOWN]
    waited = [each for each in readings if each.cpu_wait_share]
    return max(waited, key=lambda each: each.cpu_wait_share or 0.0, default=None)


@note("node-busy")
def _busy_beside(context: Context) -> Iterator[Note]:
    """What others did to a run is worth knowing if something else explains its verdict."""
    slow = any(judged.is_slow for judged in context.judged)
    if slow and not context.excused:
        for load in context.loads:
            yield Note("node-busy", f"{load.cause}: {load.summary}", (load.evidence,))


@cause("gpu-busy", "gpu-link-slow")
def gpu_busy(context: Context) -> Iterator[Finding]:
    """The GPU table shows other processes or load, or all pairs of one GPU are slow."""
    facts = context.facts
    own = {pid for _, pid in facts.processes}
    others = [s for s in facts.seen("gpu.process") if numbers.count(s["pid"]) not in own]
    load = [
        s
        for s in facts.seen("gpu.load") + facts.seen("gpu.load-csv")
        if numbers.count(s["percent"]) >= _BUSY_PERCENT
    ]
    if others or load:
        lines = [s.evidence for s in (others + load)[:3]]
        yield Finding(
            "gpu-busy",
            "certain" if others and load else "likely",
            tuple(lines),
            f"{len(others)} other processes, {len(load)} GPUs under load",
        )
        return
    slow = _slow_rank(facts.readings)
    if slow and not context.excused and facts.device != "host":
        rank, ratio, reading = slow
        lines = [reading.evidence] if reading.evidence else []
        for id_ in ("gpu-busy", "gpu-link-slow"):
            yield Finding(
                id_,
                "likely",
                tuple(lines),
                f"pairs with rank {rank} reach {ratio:.0%} of what the others reach",
                details={"rank": rank},
                effect=Verdict.DEGRADED if ratio < 0.7 else Verdict.PASS,
            )


def _slow_rank(readings: list[Reading]) -> tuple[int, float, Reading] | None:
    """Return the rank whose pairs are all slower than every other pair."""
    rates = [
        r for r in readings if r.kind == "bw" and r.source is not None and r.target is not None
    ]
    if not rates:
        return None
    largest = max(r.nbytes for r in rates)
    rates = [r for r in rates if r.nbytes == largest and r.buffers == rates[0].buffers]
    ranks = {r.source for r in rates} | {r.target for r in rates}
    if len(ranks) < 4:  # with three, one pair is all that is left to compare with
        return None
    for rank in sorted(r for r in ranks if r is not None):
        mine = [r for r in rates if rank in (r.source, r.target)]
        others = [r.value for r in rates if rank not in (r.source, r.target)]
        if not mine or len(others) < 2:
            continue
        top = max(mine, key=lambda r: r.value)
        ratio = top.value / statistics.median(others)
        if ratio < 0.85 and top.value < min(others):
            return rank, ratio, min(mine, key=lambda r: r.value)
    return None
