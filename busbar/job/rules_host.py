# SPDX-License-Identifier: MIT
"""What holds ranks up on their node: stopped, without a CPU, without memory or disk space."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.reading import Cause
from busbar.job.evidence import LiveJob, cause, named
from busbar.job.sample import LiveRank, cpus_of
from busbar.words import grouped

_CUT = 0.15
"""Share of the time in whose periods a quota stopped a group."""
_WAITED = 0.2
_APART = 0.15
_USED = 0.8
"""Share of CPUs that are in use, from which on they are what ranks wait for."""
_FAULTS_PER_S = 50.0
_FULL_BYTES = 1 << 20
_FULL = 0.001
_FAR = 0.5
_FAR_KIB = 64 << 10
_ALWAYS = 0.8
"""Share of the looks."""


def stopped(job: LiveJob) -> Iterator[Cause]:
    """A signal or a debugger stopped a rank."""
    for state, why in (("T", "stopped by a signal"), ("t", "held by a debugger")):
        if found := [r for r in job.ranks if set(r.main.states) == {state}]:
            text = f"{named(found)} {'is' if len(found) == 1 else 'are'} {why}"
            fact = f"state {state} at each look"
            yield cause("rank-stopped", "certain", text, found, "stat", fact)


def quota(job: LiveJob) -> Iterator[Cause]:
    """A cgroup used up its CPU time."""
    rows = [((r.node.node, path), (r, *q)) for r in job.ranks for path, q in r.main.cut.items()]
    for (_, path), group in grouped(row for row in rows if row[1][2] >= _CUT).items():
        ranks, (_, cpus, share) = [row[0] for row in group], group[0]
        text = (
            f"a quota of {cpus:.3g} CPUs stops {named(ranks)} in {min(share, 1):.0%} of the time"
        )
        yield cause("cpu-quota", "certain", text, ranks, f"{path}/cpu.stat")


def full(job: LiveJob) -> Iterator[Cause]:
    """A file system is full on which a rank writes."""
    for rank in job.ranks:
        for path, space in (file for each in rank.every for file in each.files):
            free, size, inodes, files = space or (1, 0, 0, 0)
            if size > 0 and (free < max(_FULL_BYTES, _FULL * size) or (files and not inodes)):
                text = f"{rank} writes {path}, whose file system is full: {free >> 10} of"
                text += f" {size >> 10} KiB and {inodes} of {files} files are free"
                yield cause("cannot-write", "certain", text, [rank], "fd")
                break


def shared_cpu(job: LiveJob) -> Iterator[Cause]:
    """Ranks may use fewer CPUs than they are."""
    groups = grouped(((rank.node.node, rank.main.allowed), rank) for rank in job.ranks)
    for (_, allowed), ranks in groups.items():
        cpus = cpus_of(allowed)
        busy = [each for each in ranks if each.main.wait >= _WAITED]
        used = sum(each.cpu for each in ranks) >= _USED * len(cpus)
        if cpus and used and len(ranks) > len(cpus) and len(busy) > 1:
            which = f"CPU {allowed}" if len(cpus) == 1 else f"the {len(cpus)} CPUs {allowed}"
            worst = max(each.main.wait for each in busy)
            text = f"{named(ranks)} share {which}, and wait for it up to {worst:.0%} of the time"
            fact = f"Cpus_allowed_list: {allowed}"
            yield cause("cpu-affinity", "certain", text, ranks, "status", fact)


def no_cpu(job: LiveJob) -> Iterator[Cause]:
    """A rank waits for a CPU while others do not; or all of them wait."""
    found = job.outliers(lambda rank: rank.main.wait, _WAITED, _APART)
    if not found and job.ranks and min(each.main.wait for each in job.ranks) >= _WAITED:
        found = [max(job.ranks, key=lambda rank: rank.main.wait)]
    for rank in found[:4]:
        text, cpus = (
            f"{rank} waited for a CPU for {rank.main.wait:.0%} of the time",
            rank.main.cpus,
        )
        rivals = [each for each in rank.node.others if each[3] in cpus]
        if not rivals and len(cpus) != 1:
            continue  # nothing shows who
        if rivals:
            pid, name, share, cpu = rivals[0]
            text += f"; {name} (PID {pid}) used {share:.0%} of CPU {cpu}"
            text += f", and {len(rivals) - 1} others ran beside" if len(rivals) > 1 else ""
        else:
            text += f": it may use CPU {rank.main.allowed} only"
        id_ = "cpu-busy" if rivals else "cpu-affinity"
        certain = rivals and len(cpus) == 1
        file = "task/*/schedstat"
        yield cause(id_, "certain" if certain else "likely", text, [rank], file)


def swapping(job: LiveJob) -> Iterator[Cause]:
    """A rank waits for memory that is in swap."""
    for rank in job.ranks:
        main = rank.main
        if main.swap_kib >= 1024 and main.faults >= _FAULTS_PER_S:
            text = (
                f"{rank} has {main.swap_kib >> 10} MiB in swap and reads {main.faults:.0f} pages/s"
            )
            yield cause("swapping", "likely", text, [rank], "status")


def far_memory(job: LiveJob) -> Iterator[Cause]:
    """The memory of a rank is on another NUMA node than its CPUs."""
    for rank in job.outliers(_far_share, _FAR, _FAR / 2):
        share, main = _far_share(rank), rank.main
        text = f"{share:.0%} of the memory of {rank} is on another NUMA node than its CPUs"
        fact = f"KiB by node: {main.numa}; CPUs {main.allowed}"
        yield cause("memory-far", "likely", text, [rank], "numa_maps", fact)


def _far_share(rank: LiveRank) -> float:
    pages, cpus = rank.main.numa, set(rank.main.cpus)
    near = {node for node, text in rank.node.numa.items() if cpus & set(cpus_of(text))}
    total = sum(pages.values())
    if total < _FAR_KIB or not near:
        return 0.0
    return sum(kib for node, kib in pages.items() if node not in near) / total


def storage(job: LiveJob) -> Iterator[Cause]:
    """A rank waits for a disk or a file server that gives nothing."""
    for rank in job.ranks:
        states, where = rank.main.states, rank.main.wchan
        if states.count("D") > _ALWAYS * len(states) and not any(rank.main.moved):
            text = f"{rank} waits in the kernel ({where}), and reads and writes nothing"
            yield cause("storage-stalled", "likely", text, [rank], "wchan")
