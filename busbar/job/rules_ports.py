# SPDX-License-Identifier: MIT
"""What holds a job up on its RDMA ports: errors, a slow link or slot, and rails without data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from busbar.engine.reading import Cause
from busbar.gate.sysfs import DOWN
from busbar.job.evidence import LIMIT, LiveJob, cause
from busbar.job.sample import LiveRank
from busbar.words import grouped, names_text


@dataclass(frozen=True)
class JobPort:
    """An RDMA port, and what it carried; of others as well, if they use it. GB/s."""

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
    """A busy port has a slower link than that of other nodes, or a PCIe slot that is slower."""
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
