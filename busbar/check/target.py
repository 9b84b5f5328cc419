# SPDX-License-Identifier: MIT
"""Where a run goes: to any nodes, to each of some nodes, or into the allocation that holds us."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from busbar.check import cluster
from busbar.check.cluster import Allocation
from busbar.check.places import Sweep
from busbar.errors import BusbarError
from busbar.judge.results import Outcome, Result
from busbar.parse.machine.sinfo import Node
from busbar.site import Site
from busbar.site.model import Partition
from busbar.site.queue import queue_of
from busbar.sweep.hostlist import expand
from busbar.verdict import Verdict

_SLURM = ("slurm", "squeue")


@dataclass(frozen=True)
class Request:
    """The options of ``busbar check`` that say where to run."""

    every_node: bool = False
    nodelist: str = ""
    sbatch: str = ""
    max_pending: str = ""


@dataclass(frozen=True)
class Target:
    """Where a run goes."""

    nodes: tuple[Node, ...] = ()
    """All nodes that the request is about."""
    sweep: Sweep | None = None
    allocation: Allocation | None = None
    options: tuple[str, ...] = ()
    """Options of ReFrame."""
    named: bool = False
    """Whether the user named the nodes: one that cannot be tested is a result then."""

    @property
    def untested(self) -> list[Node]:
        """Return the nodes that cannot be tested."""
        return [node for node in self.nodes if not node.usable]


def target_of(site: Site, request: Request) -> Target:
    """Return where to run; raise ``BusbarError`` if the request does not fit the site."""
    if site.scheduler not in _SLURM:
        if request != Request():
            raise BusbarError(
                f"site {site.name} has no Slurm",
                where="--nodes, --nodelist, --sbatch, --max-pending",
                hint="name the site of the cluster with --site",
            )
        return Target()
    pending = ("-S", f"max_pending_time={request.max_pending}") if request.max_pending else ()
    if held := cluster.allocation():
        return _inside(site, request, held)
    if not (request.every_node or request.nodelist):
        nodes = {n.name: n for p in site.partitions for n in cluster.nodes_of(queue_of(p))}
        return Target(tuple(nodes.values()), options=pending)
    by_partition = {p.name: _nodes(p, request) for p in site.partitions}
    nodes = {node.name: node for part in by_partition.values() for node in part}
    if request.nodelist:
        _refuse_others(request.nodelist, nodes, site)
    if not nodes:
        raise BusbarError(
            f"Slurm has no node in {', '.join(queue_of(p) for p in site.partitions)}",
            where=f"site {site.name}",
            hint="correct the names of the partitions in site.yaml (sinfo lists them)",
        )
    usable = {
        name: tuple(node.name for node in part if node.usable)
        for name, part in by_partition.items()
    }
    return Target(
        tuple(nodes.values()), Sweep(usable), options=pending, named=bool(request.nodelist)
    )


def _inside(site: Site, request: Request, held: Allocation) -> Target:
    """Return the nodes of the allocation, or those of them that the user names."""
    if request.sbatch or request.max_pending:
        raise BusbarError(
            f"busbar runs inside job {held.job} and submits no job",
            where="--sbatch, --max-pending",
            hint="omit the option, or run outside the job",
        )
    partition = next((p for p in site.partitions if queue_of(p) == held.partition), None)
    if partition is None:
        raise BusbarError(
            f"job {held.job} is in partition {held.partition}, which the site does not have",
            where=f"site {site.name}",
            hint="add the partition to site.yaml, or name another site with --site",
        )
    nodes = held.nodes
    if request.nodelist:
        nodes = tuple(expand(request.nodelist, "--nodelist"))
        if missing := [node for node in nodes if node not in held.nodes]:
            raise BusbarError(
                f"{', '.join(missing)} not among the nodes of job {held.job}",
                where="--nodelist",
                hint=f"the job has {', '.join(held.nodes)}",
            )
    return Target(
        tuple(Node(node, "allocated") for node in nodes),
        Sweep({partition.name: nodes}),
        held,
        ("--system", f"{site.name}:{partition.name}"),
    )


def _nodes(partition: Partition, request: Request) -> list[Node]:
    nodes = cluster.nodes_of(queue_of(partition))
    if not request.nodelist:
        return list(nodes)
    named = tuple(expand(request.nodelist, "--nodelist"))
    return [node for node in nodes if node.name in named]


def _refuse_others(nodelist: str, nodes: Iterable[str], site: Site) -> None:
    known = set(nodes)
    if missing := [node for node in expand(nodelist, "--nodelist") if node not in known]:
        raise BusbarError(
            f"{', '.join(missing)} not in {', '.join(queue_of(p) for p in site.partitions)}",
            where="--nodelist",
            hint="sinfo -N lists the nodes of each partition",
        )


def access_of(sbatch: str) -> tuple[str, ...]:
    """Return the options in ``--sbatch``, one for each line of a job script."""
    try:
        words = shlex.split(sbatch)
    except ValueError as error:
        raise BusbarError(f"{error} in {sbatch!r}", where="--sbatch", hint="quote it") from error
    options: list[str] = []
    for word in words:
        if not word.isprintable() or not (word.startswith("-") or options):
            raise BusbarError(
                f"{word!r} is not an option of sbatch",
                where="--sbatch",
                hint="as in --sbatch '--account=ops --qos=maint'",
            )
        if word.startswith("-"):
            options.append(shlex.quote(word))
        else:
            options[-1] += f" {shlex.quote(word)}"
    return tuple(options)


def coverage(target: Target, tested: Sequence[str]) -> str:
    """Return ``128 of 130 nodes tested, 2 drained: n7 drained (bad fan)...``; empty elsewhere."""
    if not target.nodes:
        return ""
    names = set(tested)
    done = sum(node.name in names for node in target.nodes)
    text = f"{done} of {len(target.nodes)} node{'s' if len(target.nodes) > 1 else ''} tested"
    left = [node.described for node in target.untested if node.name not in names]
    return text + (f", {len(left)} cannot be: {', '.join(left)}" if left else "")


def untested(target: Target, lane: str) -> list[Outcome]:
    """Return an outcome for the nodes that were named, or all nodes, and cannot be tested.

    Without names, other nodes that were tested can pass: the coverage lists the rest.
    """
    left = target.untested
    if not (target.sweep and left and (target.named or len(left) == len(target.nodes))):
        return []
    rows = [
        Result(
            "nodes",
            Verdict.NOT_RUN,
            where=node.name,
            message=f"{node.described}: Slurm starts no job on it",
        )
        for node in left
    ]
    return [Outcome("nodes", lane, tuple(rows))]
