# SPDX-License-Identifier: MIT
"""What holds ranks up on their node: stopped, without a CPU, without memory or disk space."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.engine.reading import Cause
from busbar.job.evidence import LIMIT, TABLE, LiveJob, cause
from busbar.job.sample import LiveRank, cpus_of
from busbar.words import grouped

_FROZEN = re.compile(TABLE["frozen"])


def stopped(job: LiveJob) -> Iterator[Cause]:
    """A signal, a debugger or a control group stopped a rank."""
    by = {"T": "stopped by a signal", "t": "held by a debugger"}
    rows = [(by.get(r.main.states[:1], ""), r) for r in job.ranks if len({*r.main.states}) == 1]
    frozen = [r for r in job.ranks if _FROZEN.fullmatch(f"{r.main.states} {r.main.wchan}")]
    rows += [("frozen by its control group", rank) for rank in frozen]
    for why, found in grouped(row for row in rows if row[0]).items():
        are, state = "is" if len(found) == 1 else "are", found[0].main.states[:1]
        yield cause("stopped", found, are=are, why=why, state=state)


def quota(job: LiveJob) -> Iterator[Cause]:
    """A cgroup used up its CPU time."""
    rows = [((r.node.node, path), (r, *q)) for r in job.ranks for path, q in r.main.cut.items()]
    for (_, path), group in grouped(row for row in rows if row[1][2] >= LIMIT.cut).items():
        ranks, (_, cpus, share) = [row[0] for row in group], group[0]
        yield cause("quota", ranks, path=path, cpus=cpus, share=min(share, 1))


def full(job: LiveJob) -> Iterator[Cause]:
    """A file system is full on which a rank writes."""
    for rank in job.ranks:
        for path, space in (file for each in rank.every for file in each.files):
            free, size, inodes, files = space or (1, 0, 0, 0)
            least = max(LIMIT.full_bytes, LIMIT.full * size)
            if size > 0 and (free < least or (files and not inodes)):
                kib = {"free": free >> 10, "size": size >> 10}
                yield cause("full", [rank], path=path, **kib, inodes=inodes, files=files)
                break


def shared_cpu(job: LiveJob) -> Iterator[Cause]:
    """Ranks may use fewer CPUs than they are."""
    groups = grouped(((rank.node.node, rank.main.allowed), rank) for rank in job.ranks)
    for (_, allowed), ranks in groups.items():
        cpus = cpus_of(allowed)
        busy = [each.main.wait for each in ranks if each.main.wait >= LIMIT.waited]
        used = sum(each.cpu for each in ranks) >= LIMIT.used * len(cpus)
        if cpus and used and len(ranks) > len(cpus) and len(busy) > 1:
            which = f"CPU {allowed}" if len(cpus) == 1 else f"the {len(cpus)} CPUs {allowed}"
            yield cause("shared_cpu", ranks, which=which, worst=max(busy))


def no_cpu(job: LiveJob) -> Iterator[Cause]:
    """A rank waits for a CPU while others do not; or all of them wait."""
    found = job.outliers(lambda rank: rank.main.wait, LIMIT.waited, LIMIT.waited_apart)
    if not found and job.ranks and min(each.main.wait for each in job.ranks) >= LIMIT.waited:
        found = [max(job.ranks, key=lambda rank: rank.main.wait)]
    for rank in found[:4]:
        cpus = cpus_of(rank.main.allowed)
        rivals = [each for each in rank.node.others if each[3] in cpus]
        if rivals:
            fields = dict(zip(("pid", "name", "share", "cpu"), rivals[0], strict=True))
            more = f", and {len(rivals) - 1} others ran beside" if len(rivals) > 1 else ""
            rule = "own_cpu_used" if len(cpus) == 1 else "cpu_used"
            yield cause(rule, [rank], more=more, **fields)
        elif len(cpus) == 1:  # else nothing shows who
            yield cause("one_cpu", [rank])


def swapping(job: LiveJob) -> Iterator[Cause]:
    """A rank waits for memory that is in swap."""
    for rank in job.ranks:
        kib = rank.main.swap_kib
        if kib >= LIMIT.swap_kib and rank.main.faults >= LIMIT.faults_per_s:
            yield cause("swapping", [rank], mib=kib >> 10)


def far_memory(job: LiveJob) -> Iterator[Cause]:
    """The memory of a rank is on another NUMA node than its CPUs."""
    for rank in job.outliers(_far_share, LIMIT.far, LIMIT.far / 2):
        yield cause("far_memory", [rank], share=_far_share(rank))


def _far_share(rank: LiveRank) -> float:
    pages, cpus = rank.main.numa, set(cpus_of(rank.main.allowed))
    near = {node for node, text in rank.node.numa.items() if cpus & set(cpus_of(text))}
    total = sum(pages.values())
    if total < LIMIT.far_kib or not near:
        return 0.0
    return sum(kib for node, kib in pages.items() if node not in near) / total


def storage(job: LiveJob) -> Iterator[Cause]:
    """A rank waits for a disk or a file server that gives nothing, or little and only it waits."""
    waits = [r for r in job.ranks if r.main.states.count("D") > LIMIT.always * len(r.main.states)]
    for rank in waits:
        rate = max(rank.main.moved)
        if not rate or (rate < LIMIT.slow_disk_bytes_per_s and 2 * len(waits) < len(job.ranks)):
            yield cause("storage", [rank], rate=rate / 1e6)
