# SPDX-License-Identifier: MIT
"""What holds a job up between its ranks: slow paths, TCP, and ranks that others wait for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from busbar.engine.documents import Collective
from busbar.engine.reading import Cause
from busbar.explain.rules_ranks import UNEVEN
from busbar.job.evidence import LIMIT, TABLE, LiveJob, cause, named
from busbar.job.sample import LiveRank, Process
from busbar.words import grouped

_SEGMENT, _SHARES, _APART, _SLEEPS, _DATA, _READS, _JOINED, _TALKS, _LIBRARY, _STACK = map(
    re.compile, TABLE["patterns"].values()
)

_TRANSPORTS = ("OMPI_MCA_btl", "OMPI_MCA_pml", "UCX_TLS")


@dataclass(frozen=True)
class _Path:
    """A TCP connection between two ranks, in one direction."""

    source: LiveRank
    target: LiveRank
    hosts: tuple[str, str]
    queued: float
    """Share of the looks in which data waited to be sent."""
    unread: float
    """Share of the looks in which data waited at the other end to be read."""


def _paths(job: LiveJob) -> Iterator[_Path]:
    """Yield the connections between ranks, by matching both ends."""
    of_pid = {(r.node.node, each.pid): r for r in job.ranks for each in r.every}
    ends = {
        (local, remote): (of_pid[node.node, pid], sending / looks, reading / looks)
        for node in job.nodes
        for pid, local, remote, looks, sending, reading in node.sockets
        if (node.node, pid) in of_pid and looks > 0
    }
    for (local, remote), (source, queued, _) in ends.items():
        target, _, unread = ends.get((remote, local), (source, 0, 0.0))
        if target is not source:
            hosts = local.rpartition(":")[0], remote.rpartition(":")[0]
            yield _Path(source, target, hosts, queued, unread)


def _rates(rank: LiveRank) -> dict[str, float]:
    """Return bytes per second of the interfaces of a rank."""
    return rank.node.ports.get(rank.main.space, {})


def moves(job: LiveJob) -> bool:
    """Return whether data came and went in a socket between ranks, or an RDMA port carries data.

    Data that is unread at every look may never be read. A rank that waits for data without polling
    continues only if they arrive.
    """
    ports = (rate for node in job.nodes for rate in node.ports.get("rdma", {}).values())
    flows = any((p.queued or p.unread) and p.unread < 1 for p in _paths(job))
    ranks = [rank.main for rank in job.ranks]
    if len(ranks) > 1 and all(each.switches >= LIMIT.few_switches for each in ranks):
        flows |= any(_READS.fullmatch(name) for each in ranks for name in each.waits)
    return flows or max(ports, default=0.0) >= LIMIT.moved_bytes_per_s


def _segments(job: LiveJob, rank: LiveRank) -> set[str]:
    """Return the kinds of segments by which a rank shares memory.

    Open MPI creates segments of sm and vader even if others carry the data: they count if ranks of
    the node share them.
    """
    peers = [each.main.shared for each in job.ranks if each.node is rank.node and each is not rank]
    found = ((name, _SEGMENT.match(name)) for name in rank.main.shared)
    return {m[0] for name, m in found if m and (not m["own"] or any(name in p for p in peers))}


def _can_share(rank: LiveRank) -> bool:
    libraries = [path.rpartition("/")[2] for path in rank.main.libraries or ()]
    return any(_SHARES.match(name) and (rank.main.gpu or "ccl" not in name) for name in libraries)


def tcp_within_node(job: LiveJob) -> Iterator[Cause]:
    """A rank uses TCP to ranks on its own node, while the others share memory."""
    local = [p for p in _paths(job) if p.hosts[0] == p.hosts[1] and (p.queued or p.unread)]
    talking = {
        rank.main.pid
        for p in local
        for rank in (p.source, p.target)
        if _can_share(rank) and _rates(rank).get("lo", 0.0) >= LIMIT.moved_bytes_per_s
    }
    kinds = {rank.main.pid: _segments(job, rank) for rank in job.ranks}
    usual = set().union(*kinds.values())
    lacks = [r for r in job.ranks if not kinds[r.main.pid] or usual - kinds[r.main.pid]]
    if ranks := [rank for rank in lacks if rank.main.pid in talking]:
        peers = [rank for rank in job.ranks if rank not in lacks]
        text = f", while {named(peers)} share memory" if peers else ""
        if not peers and (odd := _set_apart(ranks)):  # Open MPI lets all use TCP then
            text = f", with other settings than {named([r for r in ranks if r not in odd])}"
            ranks = odd
        yield cause("tcp_within_node", ranks, peers=text)


def _set_apart(ranks: Sequence[LiveRank]) -> list[LiveRank]:
    """Return the minority that has other settings of transports; empty if there is none."""
    groups = grouped((tuple(r.main.settings.get(n, "") for n in _TRANSPORTS), r) for r in ranks)
    odd = min(groups.values(), key=len)
    return odd if 2 * len(odd) < len(ranks) else []


def slow_path(job: LiveJob) -> Iterator[Cause]:
    """Data waits for one address, in a direction or both, and for no other."""
    paths = [p for p in _paths(job) if p.hosts[0] != p.hosts[1]]
    found = []
    for host, mine in grouped((host, p) for p in paths for host in p.hosts).items():
        waiting = [p for p in mine if p.queued >= LIMIT.queued and p.unread < p.queued / 2]
        others = [p.queued for p in paths if host not in p.hosts]
        share = fmean(p.queued for p in waiting) if waiting else 0.0
        # Without another path, it may be one that is full.
        if waiting and others and max(others) <= LIMIT.queued_apart * share:
            found.append((len(waiting), share, host))
    found.sort(reverse=True)
    hosts = [host for count, _, host in found if count == found[0][0]]
    if not hosts or len(hosts) > 2:
        return
    ends = [end for p in paths for end in zip(p.hosts, (p.source, p.target), strict=True)]
    pids = {rank.main.pid for host, rank in ends if host in hosts}
    ranks = [rank for rank in job.ranks if rank.main.pid in pids]
    rate = max((v for r in ranks for name, v in _rates(r).items() if name != "lo"), default=0.0)
    fields = {"hosts": " and ".join(hosts), "share": found[0][1], "rate": rate / 1e9}
    yield cause("slow_path", ranks, **fields)


def calls(rank: LiveRank) -> tuple[Counter[str], str]:
    """Return how often the main thread was in each call that communicates, and a stack.

    The empty call is anything else. py-spy counted stacks for two seconds.
    """
    counts: Counter[str] = Counter()
    last = ""
    for stack in _STACK.finditer(rank.main.stack):
        if "_bootstrap (threading.py" not in stack["frames"]:
            frames = stack["frames"].split(";")
            rows = (frame.partition(" (") for frame in frames)
            names = (name for name, _, file in rows if not _LIBRARY.match(file))
            last = " < ".join(frames[:-5:-1])
            counts[next(filter(_TALKS.search, names), "")] += int(stack["count"])
    return counts, last


def stacks(job: LiveJob) -> Iterator[Cause]:
    """Ranks wait in calls that do not match, or one never communicates (with --stacks)."""
    seen = [calls(rank) for rank in job.ranks]
    if len(seen) < 2 or any(len(each) != 1 for each, _ in seen) or moves(job):
        return  # not seen, or it goes from one to the other
    kinds = Counter(call for each, _ in seen for call in each)
    rarest = min(kinds, key=lambda call: (call != "", kinds[call]))
    pairs = zip(job.ranks, seen, strict=True)
    odd = [(rank, stack) for rank, (each, stack) in pairs if rarest in each]
    if len(kinds) > 1 and 2 * len(odd) <= len(seen):
        ranks, stack = [rank for rank, _ in odd], odd[0][1]
        inside = rarest or stack.partition(" < ")[0]
        rest = next(call for call in kinds if call != rarest)
        id_ = "collective-mismatch" if rarest else "rank-late"
        yield cause("stacks", ranks, id_=id_, inside=inside, rest=rest, stack=stack)


def _computes(main: Process) -> bool:
    """Return whether a process runs all the time, or would if others did not use its CPUs."""
    if main.cpu and min(main.cpu[1:] or (0.0,)) >= LIMIT.runs:
        return bool(main.switches < LIMIT.few_switches)
    wants = main.mean_cpu + main.wait >= LIMIT.runs and set(main.states) == {"R"}
    return wants and main.switches < LIMIT.no_switches


def late(job: LiveJob) -> Iterator[Cause]:
    """One rank computes all the time, and the others rest. A rank that waits for a GPU spins.

    A rank that sleeps on its own timer does not wait for others: then the spinning one may wait.
    """
    odd = [r for r in job.ranks if _computes(r.main) and not r.main.gpu]
    rest = [rank for rank in job.ranks if rank not in odd]
    calm = all(r.main.mean_cpu <= LIMIT.rests for r in rest)
    calm = calm and not any(_SLEEPS.match(r.main.wchan) and not r.main.switches for r in rest)
    if len(odd) == 1 and rest and calm and not moves(job):
        yield cause("late", odd, mean=fmean(each.main.mean_cpu for each in rest))


def _far_ends(job: LiveJob, rank: LiveRank) -> list[LiveRank]:
    """Return the ranks that a rank waits for, at the other end of a pipe, FIFO or UNIX socket.

    There are several if the kernel does not show in which of its pipes it waits.
    """
    if not (waits := _JOINED.fullmatch(rank.main.wchan)):
        return []
    mine, other = {"read": (2, 1), "write": (1, 2)}.get(waits["way"], (3, 3))
    unix = bool(waits["unix"])
    joints = {n for n, w in rank.main.joints.items() if w & mine and unix == (n[:5] == "unix ")}
    return [
        each
        for each in job.ranks
        if each is not rank and each.node is rank.node
        if any(process.joints.get(n, 0) & other for process in each.every for n in joints)
    ]


def blocked(job: LiveJob) -> Iterator[Cause]:
    """One rank waits for a pipe, a lock, a child or its own timer all the time.

    The others poll, spin, or wait for data or for that rank. One that waits for a rank of the job
    is never at fault.
    """
    still = [r for r in job.ranks if not r.main.switches and set(r.main.states) <= {*"SD"}]
    far = {rank.main.pid: _far_ends(job, rank) for rank in still}
    last = {ends[0].main.pid for ends in far.values() if len(ends) == 1}
    odd = [
        rank
        for rank in still
        if not far[rank.main.pid] and not _DATA.fullmatch(rank.main.wchan)
        if rank.main.pid in last or _APART.fullmatch(rank.main.wchan)
    ]
    rest = [rank.main for rank in job.ranks if rank not in odd]
    active = (
        p.switches >= LIMIT.few_switches
        or p.mean_cpu + p.wait >= LIMIT.runs
        or _DATA.fullmatch(p.wchan)
        or far.get(p.pid)
        for p in rest
    )
    if len(odd) == 1 and rest and all(active) and not moves(job):
        yield cause("blocked", odd)


def _call(row: Collective) -> tuple[str, int]:
    """Return the operation, and its elements if they are the same on all ranks."""
    return row[2], 0 if UNEVEN.search(row[2]) else row[3]


def recorded(job: LiveJob) -> Iterator[Cause]:
    """By their flight recorders, ranks of a group are at different collectives, and stay there."""
    stay = [r for r in job.ranks if len(r.main.recorded) > 1 and len({*r.main.recorded}) == 1]
    for group, rows in grouped(
        (row[0], (row, r)) for r in stay for row in r.main.recorded[0]
    ).items():
        most = max(row[1] for row, _ in rows)
        at = grouped((_call(row), rank) for row, rank in rows if row[1] == most)
        behind = [(row, rank) for row, rank in rows if row[1] < most]
        ranks = [rank for _, rank in behind] or min(at.values(), key=len)
        if not 0 < 2 * len(ranks) <= len(rows) or len(at) + bool(behind) < 2:
            continue
        mine = next(row for row, rank in rows if rank is ranks[0])
        rule = "recorder_late" if behind else "recorder_mismatch"
        waiting = named([rank for _, rank in rows if rank not in ranks])
        rest = next(row for row, rank in rows if rank not in ranks)
        yield cause(rule, ranks, group=group, mine=mine, rest=rest, waiting=waiting)
