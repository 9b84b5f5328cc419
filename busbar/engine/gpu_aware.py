# SPDX-License-Identifier: MIT
"""Judge a run of ``gpu_aware``: what was requested against what was printed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from busbar.engine.answer import contradictions, late_readings
from busbar.engine.assertions import not_placed
from busbar.engine.busy import Load, excused, loads
from busbar.engine.driver import plausible
from busbar.engine.expectation import expectation_of
from busbar.engine.launch import LaunchOutput
from busbar.engine.machine import differences
from busbar.engine.nonce import foreign_output
from busbar.engine.reading import Kind, Reading
from busbar.engine.results import Result, result_of
from busbar.engine.run import Run
from busbar.engine.series import series_of
from busbar.engine.verdicts import Expect, judge_reading
from busbar.parse.events import Check, End, Error, Start
from busbar.units import format_bytes
from busbar.verdict import Verdict


@dataclass(frozen=True)
class GpuAwareRequest:
    """What a check asked ``gpu_aware`` to do."""

    check: str
    ranks: int
    buffers: tuple[str, ...]
    """``("D D", "H D")``."""
    nodes: int = 1
    sizes: tuple[int, ...] = ()
    latency_sizes: tuple[int, ...] = ()
    check_sizes: tuple[int, ...] = ()
    collectives: tuple[str, ...] = ()
    lane: str = ""
    transports: tuple[str, ...] = ()
    """UCX transports of which one must join two ranks; empty where MPI does not use UCX."""
    nonce: str = ""
    """What the program must repeat in its start event; empty for recorded runs."""
    provider: str = ""
    """The libfabric provider that must join two nodes, where MPICH uses libfabric."""
    statistic: str = "mean"
    """What the program was told that a reading is over its windows; versions before 1.1 do not
    name it."""
    share_gpus: bool = False
    """Whether ranks share a GPU because the node has only one."""


_UNNAMED = {"1.0": ("",)}
"""The versions that do not name the statistic."""


def judge(asked: GpuAwareRequest, shown: LaunchOutput, run: Run) -> list[Result]:
    """Readings with their verdicts, and what is wrong with the run itself.

    A requested reading that is missing gives a ``failed`` result.
    """
    where = ",".join(dict.fromkeys(place.host for place in shown.ranks))
    problems = list(dict.fromkeys(_run_problems(asked, shown)))
    problems += [(Verdict.FAILED, text) for text in differences(run, shown)]
    if not problems:  # a run that was cut need not have come to its transports
        problems = list(_transport_problems(asked, shown.text))
    measured = [*_correctness(asked, shown, where), *_readings(asked, shown, where, run)]
    if problems and _stopped(asked, shown):
        # One reason for all that is missing, not a result for each reading.
        missing = [row for row in measured if row.missing]
        measured = [row for row in measured if not row.missing]
        if missing:
            verdict, message = problems[0]
            problems[0] = verdict, f"{message}; {len(missing)} results are missing from the output"
    results = [
        Result(asked.check, verdict, where=where, message=message) for verdict, message in problems
    ]
    return [*results, *(row.result for row in measured)]


class _Row(NamedTuple):
    result: Result
    missing: bool
    """Whether the output lacks a part of it."""


def _stopped(asked: GpuAwareRequest, shown: LaunchOutput) -> bool:
    """Whether the run did not start as requested, or ended early."""
    starts = [start for start, _ in shown.facts.events_of(Start)]
    return [start.ranks for start in starts] != [asked.ranks] or not shown.facts.finished


def _run_problems(asked: GpuAwareRequest, shown: LaunchOutput) -> Iterator[tuple[Verdict, str]]:
    failed, facts = Verdict.FAILED, shown.facts
    starts = [start for start, _ in facts.events_of(Start)]
    if len(starts) > 1:
        yield failed, f"{len(starts)} programs of {starts[0].ranks} rank(s) started, not one"
        return
    errors = dict.fromkeys(error.text for error, _ in facts.events_of(Error))
    for error in errors:
        yield failed, error
    for reason, line in facts.malformed:
        yield failed, f"line {line.line} is not a line of gpu_aware: {reason}"
    if not starts:
        complaint = next((line for line in shown.text if line.startswith("gpu_aware: ")), "")
        if not errors:
            yield failed, complaint or "the program printed nothing: it did not start"
        return
    start = starts[0]
    if start.ranks != asked.ranks:
        # The words of the program, so that its error and this are one result.
        yield failed, f"asked for {asked.ranks} ranks, MPI started {start.ranks}"
        return
    yield from _start_problems(asked, start)
    yield from _nonce_problems(asked, shown)
    yield from _place_problems(asked, shown)
    yield from _end_problems(shown)
    for contradiction in contradictions(facts, None, asked.ranks):
        yield failed, contradiction.text
    for reason in late_readings(shown):
        yield failed, reason
    wanted = re.match(r"ucx-(?P<version>\d+\.\d+)$", asked.lane)
    if start.ucx and wanted and not start.ucx.startswith(wanted["version"] + "."):
        yield failed, f"requested lane {asked.lane}, but UCX {start.ucx} was loaded"


def _start_problems(asked: GpuAwareRequest, start: Start) -> Iterator[tuple[Verdict, str]]:
    failed = Verdict.FAILED
    if start.program != "gpu_aware":
        yield failed, f"requested gpu_aware, but {start.program} ran"
    if start.asked_ranks != asked.ranks:
        yield (
            failed,
            f"requested {asked.ranks} ranks, but the program expected {start.asked_ranks}",
        )
    if start.backend == "host" and any("D" in buffers for buffers in asked.buffers):
        yield failed, "requested buffers in GPU memory, but the program used no GPU"
    if start.statistic not in (asked.statistic, *_UNNAMED.get(start.version, ())):
        yield (
            failed,
            f"requested the {asked.statistic} of the windows, but the program took"
            f" the {start.statistic or 'unknown'}",
        )
    if start.share_devices and not asked.share_gpus:
        yield failed, "the program let ranks share a GPU, which was not requested"


def _end_problems(shown: LaunchOutput) -> Iterator[tuple[Verdict, str]]:
    ends = [end for end, _ in shown.facts.events_of(End)]
    if not ends or not shown.facts.finished:
        yield Verdict.FAILED, "the output ends before the program's last line"
    if len(ends) > 1:
        yield Verdict.FAILED, f"the program ended {len(ends)} times"
    if wrong := max((end.wrong for end in ends), default=0):
        yield Verdict.FAILED, f"the program counts {wrong} bytes that arrived wrong"


def _nonce_problems(asked: GpuAwareRequest, shown: LaunchOutput) -> Iterator[tuple[Verdict, str]]:
    for reason in foreign_output(asked.nonce, shown.facts):
        yield Verdict.FAILED, reason


def _place_problems(asked: GpuAwareRequest, shown: LaunchOutput) -> Iterator[tuple[Verdict, str]]:
    failed, ranks = Verdict.FAILED, shown.ranks
    present = {rank.rank for rank in ranks}
    missing = [rank for rank in range(asked.ranks) if rank not in present]
    if missing and shown.facts.finished:
        yield failed, not_placed(missing)
    if others := sorted(present - set(range(asked.ranks))):
        yield failed, f"unexpected ranks: {', '.join(map(str, others))}"
    reports = Counter(rank.rank for rank in ranks)
    for rank in [rank for rank, count in reports.items() if count > 1][:1]:
        yield failed, f"rank {rank} reported its node more than once"
    if any("D" in buffers for buffers in asked.buffers):
        for place in [place for place in ranks if not place.device][:1]:
            yield failed, f"rank {place.rank} did not report which GPU it uses"
    hosts = {rank.host for rank in ranks}
    if ranks and len(hosts) != asked.nodes:
        names = ", ".join(sorted(hosts))
        yield failed, f"requested {asked.nodes} node(s), but the ranks ran on {names}"
    places = Counter((rank.host, rank.device) for rank in ranks if rank.device)
    for (host, device), count in places.items():
        if count > 1 and not asked.share_gpus:
            yield failed, f"{count} ranks share GPU {device} of {host}"


def _transport_problems(
    asked: GpuAwareRequest, log: Sequence[str]
) -> Iterator[tuple[Verdict, str]]:
    if asked.provider:
        yield from _provider_problems(asked.provider, log)
    if not asked.transports:
        return
    connections = peer_transports(log)
    if not connections:
        yield Verdict.FAILED, "UCX did not say which transports it took (UCX_LOG_LEVEL=info)"
    for used in connections:
        if not used & set(asked.transports):
            yield (
                Verdict.DEGRADED,
                f"the data went by {', '.join(sorted(used))}, not by any of"
                f" {', '.join(asked.transports)}",
            )


def _provider_problems(wanted: str, log: Sequence[str]) -> Iterator[tuple[Verdict, str]]:
    used = {match["name"] for line in log if (match := _PROVIDER.match(line))}
    if not used:
        yield (
            Verdict.FAILED,
            "MPICH did not say which provider it took (MPIR_CVAR_DEBUG_SUMMARY=1)",
        )
    # A provider for messages on top is named after it: verbs;ofi_rxm.
    elif other := {name for name in used if name.partition(";")[0] != wanted}:
        yield Verdict.DEGRADED, f"libfabric took {', '.join(sorted(other))}, not {wanted}"


_PROVIDER = re.compile(r"libfabric provider: (?P<name>\S+)")
_LANES = re.compile(r"\btag\((?P<lanes>[^)]*)\)")


def peer_transports(log: Iterable[str]) -> list[frozenset[str]]:
    """Return the distinct sets of transports that UCX logs for connections to other ranks."""
    found: dict[frozenset[str], None] = {}
    for line in log:
        if match := _LANES.search(line):
            lanes = frozenset(lane.split("/")[0] for lane in match["lanes"].split())
            if "self" not in lanes:
                found[lanes] = None
    return list(found)


_ONE_SIDED = ("put", "get")


def _buffers_of(operation: str, asked: Sequence[str]) -> list[str]:
    """The kinds of buffers in which an operation is compared, as the help of gpu_aware says."""
    if operation == "send_recv":
        return list(asked)
    alike = [each for each in asked if each[0] == each[-1]]
    return [each for each in alike if each == "H H" or operation not in _ONE_SIDED]


def _correctness(asked: GpuAwareRequest, shown: LaunchOutput, where: str) -> Iterator[_Row]:
    """One result for each operation and kind of buffers, over all pairs and sizes."""
    checks = [check for check, _ in shown.facts.events_of(Check)]
    operations = ["send_recv", *asked.collectives] if asked.check_sizes else []
    for operation in operations:
        pairs = asked.ranks * (asked.ranks - 1) if operation == "send_recv" else 1
        for buffers in _buffers_of(operation, asked.buffers):
            done = [
                check
                for check in checks
                if (check.operation, check.buffers) == (operation, buffers)
                and check.nbytes in asked.check_sizes
            ]
            wanted = pairs * len(asked.check_sizes)
            distinct = {(c.source, c.target, c.nbytes) for c in done}
            bad = [c for c in done if c.wrong]
            message = ""
            if bad:
                first = bad[0]
                pair = "" if first.source is None else f" from {first.source} to {first.target}"
                message = (
                    f"{sum(c.wrong for c in bad)} bytes arrived wrong,"
                    f" first at {format_bytes(first.nbytes)}{pair}"
                )
            elif len(distinct) < wanted:
                missing = wanted - len(distinct)
                message = f"{missing} of {wanted} tests are missing from the output"
            result = Result(
                asked.check,
                Verdict.FAILED if message else Verdict.PASS,
                where=where,
                pair=operation,
                metric="correctness",
                buffers=buffers,
                message=message,
            )
            yield _Row(result, missing=not bad and len(distinct) < wanted)


def _readings(asked: GpuAwareRequest, shown: LaunchOutput, where: str, run: Run) -> Iterator[_Row]:
    expect, busy = expectation_of(run), loads(shown.facts, run)
    readings = defaultdict(list)
    for r in plausible(shown.readings):
        readings[r.kind, r.source, r.target, r.buffers, r.nbytes].append(r)
    pairs = [(a, b) for a in range(asked.ranks) for b in range(asked.ranks) if a != b]
    hosts = {place.rank: place.host for place in shown.ranks}
    requested: dict[Kind, tuple[int, ...]] = {
        "latency_us": asked.latency_sizes,
        "bw": asked.sizes,
    }
    for kind, sizes in requested.items():
        for source, target in pairs:
            # The sender's host first: the comparison of nodes tells directions apart.
            ends = dict.fromkeys(hosts[rank] for rank in (source, target) if rank in hosts)
            for buffers in asked.buffers:
                for nbytes in sizes:
                    row = Result(
                        asked.check,
                        Verdict.FAILED,
                        where=",".join(ends) or where,
                        pair=f"{source}->{target}",
                        metric="latency" if kind == "latency_us" else "bandwidth",
                        buffers=buffers,
                        bytes=nbytes,
                    )
                    found = readings.pop((kind, source, target, buffers, nbytes), [])
                    yield _Row(_judge_reading(row, found, run, busy, expect), not found)
    # A recorded run, which no check has started, may have measured more.
    others = [each for found in readings.values() for each in found] if asked.nonce else []
    for strange in others[:1]:
        pair = f"{strange.source}->{strange.target} {strange.buffers}"
        message = f"{pair} at {format_bytes(strange.nbytes)} was not requested"
        result = Result(asked.check, Verdict.FAILED, where=where, message=message)
        yield _Row(result, missing=False)


def _judge_reading(
    row: Result, readings: list[Reading], run: Run, busy: Sequence[Load], expect: Expect
) -> Result:
    if len(readings) != 1:
        message = f"the {row.metric} is missing from the output"
        if readings:
            message = f"the {row.metric} is in the output {len(readings)} times"
        return replace(row, message=message)
    (reading,) = readings
    (judged,) = excused([judge_reading(reading, expect)], busy)
    result = replace(result_of(judged, row), series=series_of(run, reading))
    if reading.wrong:
        message = f"{reading.wrong} bytes arrived wrong"
        return replace(result, verdict=Verdict.FAILED, message=message)
    return result
