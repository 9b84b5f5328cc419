# SPDX-License-Identifier: MIT
"""Causes in the machine and the job: CPUs, time limits, crashes, cut output."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from busbar.engine.consistency import contradictions
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence, Reading
from busbar.explain.catalog import cause
from busbar.explain.rules import Context, Explains, Finding, failure
from busbar.parse import numbers
from busbar.parse.events import Error, Rank
from busbar.site.cpulist import parse_cpu_list
from busbar.verdict import Verdict

_LONGEST_SET = 4096
_DAEMON = re.compile(r"\[(?P<host>[^\]:\s]+):\d+\]")
# Open MPI 5: package[0][core:0-3]; Open MPI 4: socket 0[core 3[hwt 0-1]].
_CORES = re.compile(r"\bcore[: ](?P<cpus>[\d,-]+)")
_THREADED = ("nccl-tests", "torch_collectives")
"""Tools whose ranks have threads that move data beside the main one."""
_TIMEOUT_STATUS = 124  # coreutils timeout
_STAGED_GB_PER_S = 10.0
"""Every link between GPUs is faster at large sizes; PCIe gen 4 x16 carries 26."""
_PAGEABLE = 5.0
"""GB/s: copies of pageable memory are slower, every link between host and GPU is faster."""
_LARGE = 1 << 22
_MEMORY_GB_PER_S = 25_000.0
"""More than the memory of any GPU carries: HBM4 of Rubin has 22 TB/s."""


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
    except ValueError:
        return None


_Bound = dict[tuple[str, frozenset[int]], list[Evidence]]
"""By host and CPU set: the lines of the ranks that are bound to it."""


def _bindings(facts: JobOutput) -> tuple[_Bound, list[Evidence]]:
    """Return the CPU sets of ranks, and the lines of ranks bound away from their GPU's CPUs."""
    bound: _Bound = defaultdict(list)
    far: list[Evidence] = []
    for seen in facts.seen("nccl.affinity"):
        near, cpus = cpu_set(seen["near"]), cpu_set(seen["cpus"])
        if cpus:
            bound[_host(seen.evidence), cpus] += [seen.evidence] * min(seen.count, 1024)
            if near and not near & cpus:
                far.append(seen.evidence)
    if not bound:
        # The program's own line repeats NCCL's.
        for host, cpus, evidence in (*_set_by_nccl(facts), *_reported_by_ranks(facts)):
            bound[host, cpus].append(evidence)
    for host, cpus, evidence in _reported_by_launcher(facts):
        bound[host, cpus].append(evidence)
    return bound, far


_Place = tuple[str, frozenset[int], Evidence]


def _host(evidence: Evidence) -> str:
    return evidence.text.split(":", 1)[0]


def _set_by_nccl(facts: JobOutput) -> Iterator[_Place]:
    """Parse ``Setting affinity for GPU 0 to ffff,0000ffff``; newer versions print a CPU list."""
    for seen in facts.seen("nccl.affinity-set"):
        text = seen["cpus"]
        if numbers.is_whole(text) and not text.startswith("0"):
            continue  # it can be a mask or a CPU number
        mask = text.startswith("0") and len(text) > 1 and "-" not in text
        if cpus := cpu_set(f"0x{text}" if mask else text):
            for _ in range(min(seen.count, 1024)):
                yield _host(seen.evidence), cpus, seen.evidence


def _reported_by_ranks(facts: JobOutput) -> Iterator[_Place]:
    for rank, evidence in facts.events_of(Rank):
        if cpus := cpu_set(rank.cpus):
            yield rank.host, cpus, evidence


def _reported_by_launcher(facts: JobOutput) -> Iterator[_Place]:
    for seen in facts.seen("bound"):
        cores = [cpu_set(part) for part in _CORES.findall(seen["places"])]
        if cores and None not in cores:
            daemon = _DAEMON.search(seen.evidence.text)
            host = daemon["host"] if daemon else ""
            yield host, frozenset().union(*(c for c in cores if c)), seen.evidence
    for seen in facts.seen("bound.mask"):
        if cpus := cpu_set(seen["mask"]):
            yield seen["host"], cpus, seen.evidence


@cause("cpu-affinity")
def cpu_affinity(context: Context) -> Iterator[Finding]:
    """More ranks than CPUs share a CPU set, or a CPU set is far from the rank's GPU."""
    facts = context.facts
    bound, far = _bindings(facts)
    crowded = [(key, lines) for key, lines in bound.items() if len(lines) > len(key[1])]
    single = [lines for key, lines in bound.items() if len(key[1]) == 1]
    ignored = facts.setting("NCCL_IGNORE_CPU_AFFINITY")
    if crowded:
        (_, cpus), lines = max(crowded, key=lambda item: len(item[1]) / len(item[0][1]))
        summary = f"{len(lines)} ranks share {len(cpus)} CPU(s)"
        yield Finding("cpu-affinity", "certain", tuple(dict.fromkeys(lines))[:4], summary)
    elif far:
        summary = "ranks are bound away from the CPUs near their GPU"
        yield Finding("cpu-affinity", "likely", tuple(far[:3]), summary)
    elif ignored and ignored.value not in ("0", ""):
        summary = f"{ignored.name} is {ignored.value}: NCCL binds its threads only by the GPU"
        yield Finding("cpu-affinity", "likely", (ignored.evidence,), summary)
    elif single and facts.tool in _THREADED:
        summary = "a rank and its helper threads have one CPU"
        yield Finding("cpu-affinity", "likely", tuple(single[0][:2]), summary)


@cause("host-staging")
def host_staging(context: Context) -> Iterator[Finding]:
    """Rates of host memory although UCX has a path between GPUs: a buffer is on the host."""
    facts = context.facts
    if not context.on_gpu or any(r.kind != "bw" for r in facts.readings[:1]):
        return
    peers = [(e, s) for e, s in facts.endpoints.items() if not e.loopback]
    direct = [s for e, s in peers if {"cuda_ipc", "rocm_ipc"} & set(e.lanes)]
    # D D readings without a host side are other causes' business.
    rates = [
        r
        for r in facts.readings
        if r.kind == "bw" and r.nbytes >= _LARGE and ("H" in r.buffers or not r.buffers)
    ]
    if rates and direct and max(r.value for r in rates) < _STAGED_GB_PER_S:
        top = max(rates, key=lambda r: r.value)
        lines = [top.evidence] if top.evidence else []
        yield Finding(
            "host-staging",
            "likely",
            (*lines, direct[0].evidence),
            f"{top.value:.3g} GB/s at most although UCX has a transport between the GPUs",
            effect=Verdict.DEGRADED if top.buffers and top.value < _PAGEABLE else Verdict.PASS,
        )


@cause("timeout", hides=["truncated-output"])
def timeout(context: Context) -> Iterator[Finding]:
    """The scheduler or the exit status shows that a time limit was reached.

    It says nothing of the machine if other programs took the CPUs.
    """
    facts = context.facts
    message = facts.first("timeout")
    status = facts.exit_status
    evidence = [message.evidence] if message else []
    if status and status.code == _TIMEOUT_STATUS:
        evidence.append(status.evidence)
    if evidence:
        present = {rank.rank for rank, _ in facts.events_of(Rank)}
        silent = [r for r in range(context.ranks or 0) if r not in present] if present else []
        summary = "the run was ended at its time limit"
        summary += f"; rank {', '.join(map(str, silent))} printed nothing" if silent else ""
        starving = context.starving
        effect = Verdict.UNKNOWN if starving else Verdict.FAILED
        yield Finding(
            "timeout", "certain", tuple(evidence), summary, Explains.FAILURE, effect=effect
        )
        for load in starving:
            yield Finding(load.cause, "likely", (load.evidence,), load.summary, effect=effect)


def _timed_out(facts: JobOutput) -> bool:
    status = facts.exit_status
    return bool(facts.first("timeout") or (status and status.code == _TIMEOUT_STATUS))


_FATAL = re.compile(r"(?i)^(?!.*(?:NCCL INFO|\bwarn)).*(?:fatal|error|fail|abort|killed|denied)")
"""Complaints that end a run; warnings and NCCL's notes on what it tries do not."""
_PYTHON_ERROR = re.compile(r"[\w.]*(?:Error|Exception): ")
_TRACEBACK = 20
"""Lines of a short traceback."""
_DEATHS = (
    "died",
    "died.signal",
    "died.abort",
    "died.node",
    "died.cancelled",
    "died.task",
    "died.oom",
    "died.backtrace",
    "died.gpu",
    "died.ras",
    "died.daemon",
    "died.bad-termination",
    "died.mpich",
    "died.exit",
    "died.step",
    "died.message",
    "died.gpu",
    "tests.failure",
)


@cause("rank-died", hides=["truncated-output"])
def rank_died(context: Context) -> Iterator[Finding]:
    """Launchers report a signal, an abort or an exit code, or the exit status is not 0."""
    facts = context.facts
    ignored = _went_on(facts)
    deaths = [s for kind in _DEATHS for s in facts.seen(kind) if s.evidence not in ignored]
    errors = facts.events_of(Error)
    # After a time limit srun reports its own kill in the same words.
    if _timed_out(facts):
        # Messages of the ranks that it kills are not causes either.
        deaths = facts.seen("died.oom") + facts.seen("died.signal")
        errors = []
    elif not (facts.readings or facts.finished):
        deaths += facts.seen("trouble")
    status = facts.exit_status
    failed = status is not None and status.code not in (0, _TIMEOUT_STATUS)
    if not deaths and not errors and not failed:
        return
    lines = [s.evidence for s in deaths[:3]] or [e for _, e in errors[:3]]
    nodes = [facts.places[kind] for kind in _DEATHS if kind in facts.places and deaths]
    lines += [line for line in nodes[:1] if line not in lines]
    if not lines and status:
        lines = [status.evidence]
    first = deaths[0].evidence.text if deaths else errors[0][0].text if errors else ""
    summary = first.strip() or f"exit status {status.code if status else ''}"
    yield failure("rank-died", [*lines, *_reason(facts, lines)], summary, "likely")


def _went_on(facts: JobOutput) -> list[Evidence]:
    """Return the lines of errors of which Python says that it ignores them."""
    lines = [seen.evidence for seen in facts.seen("died.message")]
    found = []
    for seen in facts.seen("error-ignored"):
        after = [e for e in lines if e.file == seen.evidence.file and e.line > seen.evidence.line]
        found += [e for e in after if e.line == seen.evidence.line + 1]
        errors = [e for e in after if _PYTHON_ERROR.match(e.text)]
        nearest = min(errors, key=lambda e: e.line, default=None)
        if nearest and nearest.line <= seen.evidence.line + _TRACEBACK:
            found.append(nearest)
    return found


def _reason(facts: JobOutput, lines: Sequence[Evidence]) -> list[Evidence]:
    """Return the nearest line that can say why a run ended, if ``lines`` do not have it."""
    return [facts.complaint] if facts.complaint and facts.complaint not in lines else []


@cause("truncated-output")
def truncated(context: Context) -> Iterator[Finding]:
    """The output stops inside a row or record, or a message says why it has no more rows.

    The lines that a table lacks prove nothing: whoever posts a table leaves rows out.
    """
    facts = context.facts
    if context.starving and _timed_out(facts):
        return
    if facts.finished or not (facts.tool or facts.incomplete or facts.pending):
        return
    if facts.incomplete:
        yield _cut(facts, facts.incomplete, "the input ends inside a record")
        return
    if facts.pending:
        yield _cut(facts, facts.pending, "a result row is incomplete")
        return
    if facts.tool == "nccl_message_transfer":
        started = facts.first("ofi.process")
        if started and len(set(facts.values("ofi.completions", "rank"))) < 2:
            yield _cut(
                facts, started.evidence, "not every rank reports that its messages completed"
            )
        return
    if facts.tool in ("gpu_aware", "torch_collectives") and facts.launches:
        last = facts.readings[-1].evidence if facts.readings else facts.launches[-1]
        yield _cut(facts, last or facts.launches[-1], "the program's last line is missing")
        return
    line = next((r.evidence for r in reversed(facts.readings) if r.evidence), None)
    line = line or (facts.launches[-1] if facts.table_seen and facts.launches else None)
    summary = missing_sizes(context) or ("" if facts.readings else "the table has no rows")
    if line and summary and _ended_badly(facts, line):
        yield _cut(facts, line, summary)


def missing_sizes(context: Context) -> str:
    """Return what a table lacks of the sizes that were requested; empty if it lacks none."""
    facts = context.facts
    largest = max((r.nbytes for r in facts.readings), default=-1)
    requested = facts.max_bytes or _requested_size(context)
    if facts.finished or not requested or not 0 <= largest < requested * 0.9:
        return ""
    return f"the last size is {largest} bytes, {requested} were requested"


def _ended_badly(facts: JobOutput, last: Evidence) -> bool:
    """Return whether a message after the last line of a table says that the program failed."""
    complaint = facts.complaint
    return bool(
        complaint
        and complaint.file == last.file
        and complaint.line > last.line
        and _FATAL.search(complaint.text)
    )


def _requested_size(context: Context) -> int | None:
    for command, _ in context.facts.commands:
        for option, value in zip(command.arguments, command.arguments[1:], strict=False):
            if option == "-m":
                return numbers.whole(value.rsplit(":", 1)[-1])
    return None


def _cut(facts: JobOutput, evidence: Evidence, summary: str) -> Finding:
    lines = [evidence, *_reason(facts, [evidence])]
    return failure("truncated-output", lines, summary, "likely")


@cause("invalid-reading")
def no_number(context: Context) -> Iterator[Finding]:
    """Readings are no rates, no memory is as fast, or the output contradicts itself."""
    measured = [] if is_alone(context.facts, context.ranks) else context.facts.readings
    odd = [r for r in measured if r.evidence and _impossible(r)]
    odd += list(_without_traffic(measured))
    if not odd:
        for text, line in contradictions(context.facts, context.operation, context.ranks):
            yield failure("invalid-reading", [line] if line else [], text)
    if odd:
        lines = list(dict.fromkeys(r.evidence for r in odd if r.evidence))
        summary = f"{odd[0].kind} of {odd[0].value:g} at {odd[0].nbytes} bytes is not a rate"
        yield failure("invalid-reading", lines[:3], summary)


def is_alone(facts: JobOutput, ranks: int | None) -> bool:
    """Return whether nccl-tests ran one rank, whose bus bandwidth is 0 by definition.

    Rows without their header do not say how many ranks ran: it was one if all have 0, though data
    moved at a rate that two decimals show.
    """
    rates = [r.value for r in facts.readings if r.kind == "busbw"]
    moved = ranks is None and any(_without_traffic(facts.readings))
    one = facts.tool == "nccl-tests" and (ranks == 1 or moved) and len(facts.launches) < 2
    return one and bool(rates) and not any(rates)


def _impossible(reading: Reading) -> bool:
    rate = reading.kind != "latency_us"
    return (
        not math.isfinite(reading.value)
        or reading.value < 0
        or (rate and reading.value > _MEMORY_GB_PER_S)
    )


def _without_traffic(readings: Sequence[Reading]) -> Iterator[Reading]:
    """Yield bus bandwidths of 0 beside a large algorithm bandwidth: nothing left the GPU."""
    rates: dict[tuple[Evidence | None, bool | None], float] = {
        (r.evidence, r.in_place): r.value for r in readings if r.kind == "algbw"
    }
    for reading in readings:
        beside = rates.get((reading.evidence, reading.in_place), 0.0)
        if reading.kind == "busbw" and reading.value == 0 and beside >= 1 and reading.evidence:
            yield reading
