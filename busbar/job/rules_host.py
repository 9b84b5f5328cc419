# SPDX-License-Identifier: MIT
"""What holds ranks up on their node: stopped, no CPU, memory or disk space, and its RDMA ports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from busbar.engine.reading import Cause
from busbar.gate.sysfs import DOWN
from busbar.job.evidence import LIMIT, TABLE, LiveJob, cause
from busbar.job.sample import LiveRank, cpus_of
from busbar.words import grouped, names_text

_FROZEN = re.compile(TABLE["frozen"])


def stopped(job: LiveJob) -> Iterator[Cause]:
    """A signal, a debugger or a control group stopped a rank."""
    by = {"T": "stopped by a signal", "t": "held by a debugger"}
    rows = [(by.get(r.main.states[:1], ""), r) for r in job.ranks if len({*r.main.states}) == 1]
    frozen = [r for r in job.ranks if _FROZEN.fullmatch(f"{r.main.states} {r.main.wchan}")]
    rows += [("frozen by its cgroup", rank) for rank in frozen]
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


@dataclass(frozen=True)
class JobPort:
    """An RDMA port and the GB/s that it carried, including traffic of other jobs."""

    node: str
    port: str
    received: float
    sent: float
    link: float
    """That its link carries in one direction."""
    limit: float
    """That its link or its PCIe slot carries, whichever is less."""

    @property
    def rate(self) -> float:
        """Return GB/s in the busier direction."""
        return max(self.received, self.sent)

    @property
    def busy(self) -> bool:
        """Return whether it carries the data of a job."""
        return bool(self.rate >= LIMIT.port_busy * self.limit)


def ports_of(job: LiveJob, kind: str = "rdma") -> tuple[JobPort, ...]:
    """Return the active ports of the nodes."""
    found = []
    for node in job.nodes:
        rates = node.ports.get(kind, {})
        for name, (link, slot) in node.limits.items():
            if f"{name} in" in rates:
                received, sent = (rates[f"{name} {way}"] / 1e9 for way in ("in", "out"))
                limit = min(link, slot or link)
                found.append(JobPort(node.node, name, received, sent, link, limit))
    return tuple(found)


def _ranks(job: LiveJob, *ports: JobPort) -> list[LiveRank]:
    hosts = {port.node for port in ports}
    return [rank for rank in job.ranks if rank.node.node in hosts]


def errors(job: LiveJob) -> Iterator[Cause]:
    """A port that carries data counts errors, or one lost its link."""
    ports = {(port.node, port.port): port for port in ports_of(job)}
    for node in job.nodes:
        for what, rate in node.ports.get("errors", {}).items():
            name, _, counter = what.partition(" ")
            port, count = ports.get((node.node, name)), round(rate * node.seconds)
            if port and count and (counter == DOWN or (port.busy and count >= LIMIT.errors)):
                id_ = "link-down" if counter == DOWN else "link-errors"
                fields = {"port": port, "count": count, "counter": counter}
                yield cause("errors", _ranks(job, port), id_=id_, **fields)


def slow(job: LiveJob) -> Iterator[Cause]:
    """A busy port has a slower link than on other nodes, or a PCIe slot that is slower."""
    ports = ports_of(job)
    links = grouped((port.port, port.link) for port in ports)
    for port in ports:
        usual = max(median(links[port.port]), port.link)
        full = LIMIT.full_port <= port.rate / port.limit <= LIMIT.beyond
        if port.limit < LIMIT.slow_port * usual and full:
            what = "link" if port.limit == port.link else "PCIe slot"
            yield cause("port_slow", _ranks(job, port), port=port, what=what, usual=usual)


def _kind(port: JobPort) -> tuple[str, str, float]:
    """Return what the ports of a node have in common that do the same."""
    return port.node, port.port.rstrip("/0123456789"), port.link


def idle(job: LiveJob) -> Iterator[Cause]:
    """Rails carry nothing, although the job has as many GPUs, or uses them on other nodes."""
    ports = ports_of(job)
    used = {port.port for port in ports if port.busy}
    found: list[JobPort] = []
    for (host, *_), mine in grouped((_kind(port), port) for port in ports).items():
        busy = [port.rate for port in mine if port.busy]
        rest = [port for port in mine if port.rate < LIMIT.port_idle * min(busy, default=0.0)]
        gpus = sum(rank.main.gpu for rank in job.ranks if rank.node.node == host)
        if gpus >= len(mine) or used & {port.port for port in rest}:
            found += rest
    hosts = {port.node for port in found}
    beside = [port for port in ports if port.node in hosts and port.busy]
    if ranks := _ranks(job, *found):
        names, others = (names_text([p.port for p in some], 8) for some in (found, beside))
        fields = {"names": names, "others": others, "hosts": names_text(sorted(hosts))}
        fields["chosen"] = ranks[0].main.settings.get("NCCL_IB_HCA", "")
        yield cause("rails_idle", ranks, most=max(port.rate for port in beside), **fields)


def fullest(job: LiveJob) -> str:
    """Return what the fullest port carried of its limit; empty if none carries data."""
    ports = [p for kind in ("rdma", "ethernet") for p in ports_of(job, kind) if p.busy]
    if not ports:
        return ""
    port = max(ports, key=lambda each: each.rate / each.limit)
    share = port.rate / port.limit
    text = f"{port.port} of {port.node} carries {port.rate:.3g} of {port.limit:.3g} GB/s"
    return f"{text}, {share:.0%}{'' if share < LIMIT.port_full else ': the network is the limit'}"
