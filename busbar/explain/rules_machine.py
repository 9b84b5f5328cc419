# SPDX-License-Identifier: MIT
"""Causes in the machine: CPUs, other programs, limits of heat and power, GPUs."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from busbar.engine.job_output import JobOutput, Occurrence
from busbar.engine.reading import Evidence, Reading
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Explains, Finding, failure, finding
from busbar.explain.xid import catalog
from busbar.gate.site import UNKNOWN_XID
from busbar.parse import numbers
from busbar.parse.cpulist import parse_cpu_list
from busbar.parse.events import Rank
from busbar.units import format_bytes
from busbar.verdict import Verdict

_LONGEST_SET = 4096
_MOST_RANKS = 1024
"""Ranks that one repeated line can represent."""
_DAEMON = re.compile(r"\[(?P<host>[^\[\]:\s]+):\d+\]")
# Open MPI 5: package[0][core:0-3]; Open MPI 4: socket 0[core 3[hwt 0-1]].
_CORES = re.compile(r"\bcore[: ](?P<cpus>[\d,-]+)")
_THREADED = ("nccl-tests", "torch_collectives")
"""Tools whose ranks have threads besides the main one that move data."""
_STAGED_GB_PER_S = 10.0
"""Every link between GPUs is faster at large sizes; PCIe gen 4 x16 carries 26."""
_PAGEABLE = 5.0
"""GB/s: copies of pageable memory are slower, every link between host and GPU is faster."""
_LARGE = 1 << 22
_BUSY_PERCENT = 10
_STEADY = 1.02
"""The fastest over the slowest of pairs that only their links limit."""


# ---- CPUs
def cpu_set(text: str) -> frozenset[int] | None:
    """Parse the CPU list ``0-3,8`` or the mask ``ff,ffffffff``; None for anything else."""
    text = text.strip()
    if not text or len(text) > _LONGEST_SET:
        return None
    try:
        if "-" not in text and any(c in "abcdefx" for c in text.lower()):
            mask = int(text.replace(",", ""), 16)
            return frozenset(i for i in range(mask.bit_length()) if mask >> i & 1)
        return frozenset(parse_cpu_list(text))
    except ValueError:  # the log was cut inside the mask
        return None


_Place: TypeAlias = tuple[str, frozenset[int], Evidence]
"""Host and CPU set of a rank, and the line that shows them."""


def _bindings(facts: JobOutput) -> Iterator[_Place]:
    """Yield the CPU sets of ranks; the program's own line repeats NCCL's."""
    shown = [(seen, seen["cpus"]) for seen in facts.seen("nccl.affinity")]
    noted = list(_noted_by_nccl(shown))
    ranks = [(r.host, cpus, e) for r, e in facts.events_of(Rank) if (cpus := cpu_set(r.cpus))]
    set_ = [(seen, _set_by_nccl(seen["cpus"])) for seen in facts.seen("nccl.affinity-set")]
    yield from noted or (*_noted_by_nccl(set_), *ranks)
    for seen in facts.seen("bound"):
        cores = [cpu_set(part) for part in _CORES.findall(seen["places"])]
        if cores and None not in cores:
            daemon = _DAEMON.search(seen.evidence.text)
            host = daemon["host"] if daemon else ""
            yield host, frozenset().union(*(c for c in cores if c)), seen.evidence
    for seen in facts.seen("bound.mask"):
        if cpus := cpu_set(seen["mask"]):
            yield seen["host"], cpus, seen.evidence


def _noted_by_nccl(lines: Iterable[tuple[Occurrence, str]]) -> Iterator[_Place]:
    for seen, text in lines:
        if cpus := cpu_set(text):
            host = seen.evidence.text.split(":", 1)[0]
            yield from [(host, cpus, seen.evidence)] * min(seen.count, _MOST_RANKS)


def _set_by_nccl(text: str) -> str:
    """Return the CPU list or the mask ``0xffff,0000ffff``; newer versions print a list.

    Nothing for a number that can be a mask or the number of a CPU.
    """
    if numbers.is_whole(text) and not text.startswith("0"):
        return ""
    mask = text.startswith("0") and len(text) > 1 and "-" not in text
    return f"0x{text}" if mask else text


@cause("cpu-affinity")
def cpu_affinity(context: Context) -> Finding | None:
    """More ranks than CPUs share a CPU set, or a CPU set is far from the rank's GPU."""
    facts = context.facts
    bound: dict[tuple[str, frozenset[int]], list[Evidence]] = defaultdict(list)
    for host, cpus, line in _bindings(facts):
        bound[host, cpus].append(line)
    far = [
        seen
        for seen in facts.seen("nccl.affinity")
        if (near := cpu_set(seen["near"])) and (own := cpu_set(seen["cpus"])) and not near & own
    ]
    crowded = [(key, lines) for key, lines in bound.items() if len(lines) > len(key[1])]
    single = [lines for key, lines in bound.items() if len(key[1]) == 1]
    ignored = facts.setting("NCCL_IGNORE_CPU_AFFINITY")
    if crowded:
        (_, cpus), lines = max(crowded, key=lambda item: len(item[1]) / len(item[0][1]))
        summary = f"{len(lines)} ranks share {len(cpus)} CPU(s)"
        return finding(summary, *[*dict.fromkeys(lines)][:4])
    if far:
        summary = "ranks are bound away from the CPUs near their GPU"
        return finding(summary, *far[:3], certain=False)
    if ignored and ignored.value not in ("0", ""):
        summary = f"{ignored.name} is {ignored.value}: NCCL binds its threads only by the GPU"
        return finding(summary, ignored, certain=False)
    if single and facts.tool in _THREADED:
        summary = "a rank and its helper threads share one CPU"
        return finding(summary, *single[0][:2], certain=False)
    return None


@cause("host-staging")
def host_staging(context: Context) -> Finding | None:
    """Rates of host memory although UCX has a path between GPUs: a buffer is on the host."""
    facts = context.facts
    if not context.on_gpu or any(r.kind != "bw" for r in facts.readings[:1]):
        return None
    peers = [(e, s) for e, s in facts.endpoints.items() if not e.loopback]
    direct = [s for e, s in peers if {"cuda_ipc", "rocm_ipc"} & set(e.lanes)]
    # D D readings without a host side are other causes' business.
    rates = [
        r
        for r in facts.readings
        if r.kind == "bw" and r.nbytes >= _LARGE and ("H" in r.buffers or not r.buffers)
    ]
    if not (rates and direct and max(r.value for r in rates) < _STAGED_GB_PER_S):
        return None
    top = max(rates, key=lambda r: r.value)
    slow = top.buffers and top.value < _PAGEABLE
    summary = f"{top.value:.3g} GB/s at most although UCX has a transport between the GPUs"
    effect = Verdict.DEGRADED if slow else Verdict.PASS
    return finding(summary, top, direct[0], certain=False, effect=effect)


# ---- other programs
@cause("cpu-busy", "cpu-quota", "gpu-busy", "gpu-throttled", "nic-busy")
def busy(context: Context) -> Iterator[Finding]:
    """The record of the job shows others, and readings below their band that they account for."""
    for load in context.loads if context.excused else ():
        lines, summary = [load.evidence], load.summary
        waited = _longest_waiting(context) if load.most_waiting is not None else None
        if waited and waited.evidence:
            lines.append(waited.evidence)
            summary += (
                f"; {waited.source}->{waited.target} at {format_bytes(waited.nbytes)}"
                f" waited for a CPU for {waited.cpu_wait_share or 0.0:.0%} of its time"
            )
        yield finding(
            summary, *dict.fromkeys(lines), certain=False, explains=Explains.LOAD, id_=load.cause
        )


def _longest_waiting(context: Context) -> Reading | None:
    """Return the reading that is ``unknown`` and whose ranks waited longest for CPUs."""
    readings = [j.reading for j in context.judged if j.verdict is Verdict.UNKNOWN]
    waited = [each for each in readings if each.cpu_wait_share]
    return max(waited, key=lambda each: each.cpu_wait_share or 0.0, default=None)


@cause("gpu-busy", "gpu-link-slow")
def gpu_busy(context: Context) -> Iterator[Finding]:
    """The GPU table shows other processes or load, or all pairs of one GPU are slow."""
    facts = context.facts
    own = {pid for _, pid in facts.processes}
    others = [s for s in facts.seen("gpu.process") if numbers.count(s["pid"]) not in own]
    loads = facts.seen("gpu.load") + facts.seen("gpu.load-csv")
    load = [s for s in loads if numbers.count(s["percent"]) >= _BUSY_PERCENT]
    if others or load:
        summary = f"{len(others)} other processes, {len(load)} GPUs under load"
        yield finding(summary, *(others + load)[:3], certain=bool(others and load))
        return
    slow = _slow_rank(facts.readings)
    if slow and not context.excused and facts.device != "host":
        rank, ratio, mine = slow
        name = "GPU" if context.nodes == 1 else "rank"
        summary = f"each pair with {name} {rank} is slower than every other pair"
        effect = Verdict.DEGRADED if ratio < 0.7 else Verdict.PASS
        # Lost links take the same share of each pair; another program disturbs some more.
        steady = mine[-1].value < _STEADY * mine[0].value
        for id_ in ("gpu-link-slow", "gpu-busy") if steady else ("gpu-busy", "gpu-link-slow"):
            yield finding(summary, mine[0], certain=False, effect=effect, id_=id_, rank=rank)


def _slow_rank(readings: Sequence[Reading]) -> tuple[int, float, list[Reading]] | None:
    """Return the rank whose pairs are all slower than every other pair, and these, slowest first.

    With them, what their best reaches of what others reach.
    """
    rates = [
        r for r in readings if r.kind == "bw" and r.source is not None and r.target is not None
    ]
    largest = max((r.nbytes for r in rates), default=0)
    rates = [r for r in rates if r.nbytes == largest and r.buffers == rates[0].buffers]
    ranks = {rank for r in rates for rank in (r.source, r.target) if rank is not None}
    if len(ranks) < 4:  # with three, one pair is all that is left to compare with
        return None
    for rank in sorted(ranks):
        mine = sorted(
            (r for r in rates if rank in (r.source, r.target)), key=lambda each: each.value
        )
        others = [r.value for r in rates if rank not in (r.source, r.target)]
        if not mine or len(others) < 2:
            continue
        top = mine[-1].value
        ratio = top / statistics.median(others)
        if ratio < 0.85 and top < min(others):
            return rank, ratio, mine
    return None


# ---- faults of GPUs that the kernel logs by number
_GRAVITY = ("hardware", "driver", "unknown", "application", "notice", "consequence")
"""Kinds of codes, the one that explains most first."""


@cause("gpu-fault", fatal=True)
def xid(context: Context) -> Finding | None:
    """The kernel logged an Xid; those of hardware and driver prove a fault of the GPU."""
    known = catalog()

    def gravity(seen: Occurrence) -> int:
        return _GRAVITY.index(known.get(numbers.count(seen["code"]), UNKNOWN_XID).kind)

    codes = sorted(context.facts.seen("gpu.xid"), key=gravity)
    if not codes:
        return None
    first = known.get(numbers.count(codes[0]["code"]), UNKNOWN_XID)
    if first.kind in ("notice", "consequence") and context.facts.readings:
        return None
    summary = f"Xid {codes[0]['code']}: {first.meaning}; {first.action}"
    return failure(summary, *codes[:3], certain=first.kind == "hardware")
