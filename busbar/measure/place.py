# SPDX-License-Identifier: MIT
"""The nodes of a sweep: those of the job that holds this process, or of one to submit."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from busbar.check import cluster
from busbar.check.target import SLURM, Wish, partition_of, refuse_to_submit
from busbar.delivery.reframe import slurm_options
from busbar.errors import BusbarError
from busbar.site import Site
from busbar.site.model import Partition
from busbar.site.queue import queue_of
from busbar.sweep.hostlist import expand


@dataclass(frozen=True)
class Place:
    """The partition and the nodes of a sweep."""

    partition: Partition
    nodes: tuple[str, ...]
    held: bool
    """Whether this process is inside a job that has the nodes."""
    unusable: tuple[str, ...] = ()
    """Nodes that Slurm starts no job on, with their state."""


def place_of(site: Site, wish: Wish) -> Place:
    """Return the nodes of the job that holds this process, else those that Slurm can give."""
    if site.scheduler not in SLURM:
        raise BusbarError(
            f"site {site.name} has no Slurm",
            where="--site",
            hint="name the site of the cluster with --site",
        )
    held = cluster.allocation()
    partition = partition_of(site, held.partition if held else "", wish.partition)
    if held:
        refuse_to_submit(wish, held)
        return Place(partition, _named(held.nodes, wish.nodelist), held=True)
    nodes = cluster.nodes_of(queue_of(partition))
    if not nodes:
        raise BusbarError(
            f"Slurm has no node in partition {queue_of(partition)}, or does not answer",
            where=f"site {site.name}",
            hint="run on a host of the cluster, or correct the partition in site.yaml (see sinfo)",
        )
    names = _named([node.name for node in nodes], wish.nodelist)
    usable = [node for node in nodes if node.name in names and node.usable]
    others = [node.described for node in nodes if node.name in names and not node.usable]
    return Place(
        partition, tuple(node.name for node in usable), held=False, unusable=tuple(others)
    )


def options_of(partition: Partition, wish: Wish) -> list[str]:
    """Return the options that give a job access to a partition, as words of a command."""
    text = " ".join(slurm_options(partition, wish.access))
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BusbarError(
            f"{error} in {text!r}", where=f"access of partition {partition.name}", hint="quote it"
        ) from error


def submit(place: Place, wish: Wish, command: Sequence[str]) -> int:
    """Run a command of Busbar in a job on these nodes; return its exit status.

    The job survives the failure of a node. It ends with this process.
    """
    pending = wish.max_pending_s
    options = [
        *options_of(place.partition, wish),
        *([f"--immediate={pending}"] if pending is not None else []),
        *(f"--nodes={len(place.nodes)}", f"--nodelist={','.join(place.nodes)}"),
        *("--no-kill", "--job-name=busbar-sweep"),
    ]
    done = subprocess.run(
        ["salloc", *options, sys.executable, "-m", "busbar", *command], check=False
    )
    return done.returncode


def _named(nodes: Sequence[str], nodelist: str) -> tuple[str, ...]:
    """Return the nodes, or those of them that the user names."""
    if not nodelist:
        return tuple(nodes)
    named = expand(nodelist, "--nodelist")
    if missing := [node for node in named if node not in nodes]:
        raise BusbarError(
            f"{', '.join(missing)} not among the nodes",
            where="--nodelist",
            hint="sinfo -N lists the nodes of each partition",
        )
    return tuple(named)
