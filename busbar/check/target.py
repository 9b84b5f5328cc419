# SPDX-License-Identifier: MIT
"""Where a run goes: to any nodes, to each of some nodes, or into the allocation that holds us."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from busbar.check import cluster
from busbar.check.cluster import Allocation
from busbar.check.places import Sweep
from busbar.engine.results import Outcome, Result
from busbar.errors import BusbarError
from busbar.parse.machine.sinfo import Node
from busbar.site import Site
from busbar.site.model import Partition
from busbar.site.queue import queue_of
from busbar.sweep.hostlist import expand
from busbar.verdict import Verdict

SLURM = ("slurm", "squeue")


@dataclass(frozen=True)
class Wish:
    """Which nodes to test, and how Slurm gives them."""

    partition: str = ""
    """A partition of the site."""
    nodelist: str = ""
    reservation: str = ""
    sbatch: str = ""
    max_pending_s: int | None = None

    @property
    def access(self) -> tuple[str, ...]:
        """Options of sbatch, one for each line of a job script."""
        if not self.reservation:
            return access_of(self.sbatch)
        return access_of(f"{self.sbatch} --reservation={shlex.quote(self.reservation)}")


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


def target_of(site: Site, wish: Wish, *, every_node: bool = False) -> Target:
    """Return where to run; raise ``BusbarError`` if the wish does not fit the site."""
    if site.scheduler not in SLURM:
        if every_node or wish != Wish():
            raise BusbarError(
                f"site {site.name} has no Slurm",
                where="--partition, --reservation, --sbatch, --max-pending, --nodes, --nodelist",
                hint="name the site of the cluster with --site",
            )
        return Target()
    if held := cluster.allocation():
        return _inside(site, wish, held)
    partitions, options = site.partitions, []
    if wish.partition:
        partitions = (partition_of(site, "", wish.partition),)
        options += ["--system", f"{site.name}:{wish.partition}"]
    if wish.max_pending_s is not None:
        options += ["-S", f"max_pending_time={wish.max_pending_s}s"]
    if not (every_node or wish.nodelist):
        nodes = {n.name: n for p in partitions for n in cluster.nodes_of(queue_of(p))}
        return Target(tuple(nodes.values()), options=tuple(options))
    by_partition = {p.name: _nodes(p, wish.nodelist) for p in partitions}
    nodes = {node.name: node for part in by_partition.values() for node in part}
    queues = ", ".join(queue_of(partition) for partition in partitions)
    if wish.nodelist:
        _refuse_others(wish.nodelist, nodes, queues)
    if not nodes:
        raise BusbarError(
            f"Slurm has no node in {queues}",
            where=f"site {site.name}",
            hint="correct the names of the partitions in site.yaml (sinfo lists them)",
        )
    usable = {
        name: tuple(node.name for node in part if node.usable)
        for name, part in by_partition.items()
    }
    return Target(
        tuple(nodes.values()), Sweep(usable), options=tuple(options), named=bool(wish.nodelist)
    )


def partition_of(site: Site, queue: str, name: str) -> Partition:
    """Return the named partition; without a name, the only one or the one of the current job.

    ``queue`` is Slurm's partition of that job, empty outside.
    """
    possible = [each for each in site.partitions if queue in ("", queue_of(each))]
    if not possible:
        raise BusbarError(
            f"the job is in partition {queue}, which the site does not have",
            where=f"site {site.name}",
            hint="add the partition to site.yaml, or name another site with --site",
        )
    fitting = [each for each in possible if name in ("", each.name)]
    if len(fitting) == 1 or (queue and fitting):
        return fitting[0]
    names = ", ".join(each.name for each in possible)
    raise BusbarError(
        f"{name}: not one of {names}" if name else f"the site has several: {names}",
        where="--partition",
        hint="name one with --partition",
    )


def refuse_to_submit(wish: Wish, held: Allocation) -> None:
    """Raise ``BusbarError`` if the wish has options of a job: inside a job none is submitted."""
    if wish.reservation or wish.sbatch or wish.max_pending_s is not None:
        raise BusbarError(
            f"busbar runs inside job {held.job} and submits no job",
            where="--reservation, --sbatch, --max-pending",
            hint="omit the option, or run outside the job",
        )


def _inside(site: Site, wish: Wish, held: Allocation) -> Target:
    """Return the nodes of the allocation, or those of them that the user names."""
    refuse_to_submit(wish, held)
    partition = partition_of(site, held.partition, wish.partition)
    nodes = held.nodes
    if wish.nodelist:
        nodes = tuple(expand(wish.nodelist, "--nodelist"))
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


def _nodes(partition: Partition, nodelist: str) -> list[Node]:
    nodes = cluster.nodes_of(queue_of(partition))
    if not nodelist:
        return list(nodes)
    named = tuple(expand(nodelist, "--nodelist"))
    return [node for node in nodes if node.name in named]


def _refuse_others(nodelist: str, nodes: Iterable[str], queues: str) -> None:
    known = set(nodes)
    if missing := [node for node in expand(nodelist, "--nodelist") if node not in known]:
        raise BusbarError(
            f"{', '.join(missing)} not in {queues}",
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
