# SPDX-License-Identifier: MIT
"""Which nodes of a site a command tests, and the options by which Slurm gives them."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from busbar.errors import BusbarError, require_known, value_error
from busbar.parse.tables import load_yaml, refused
from busbar.site.model import Partition, Site
from busbar.slurm.client import Allocation, Slurm, scheduler_of
from busbar.slurm.hostlist import expand
from busbar.slurm.nodes import Node

_OPTION = re.compile(r"(?:^|\s)(?:--partition[=\s]|-p\s*)(?P<queue>\S+)")


def named_queue(options: Iterable[str]) -> str:
    """Return the partition that options of sbatch name; empty if they name none."""
    option = _OPTION.search(" ".join(options))
    return option["queue"] if option else ""


def queue_of(partition: Partition) -> str:
    """Return the partition that ``access`` names, else the name of the partition."""
    return named_queue(partition.access) or partition.name


@dataclass(frozen=True)
class Wish:
    """Which nodes to test, and how Slurm gives them."""

    partition: str = ""
    """A partition of the site."""
    nodelist: str = ""
    reservation: str = ""
    sbatch: str = ""
    max_pending_s: int | None = None

    def __post_init__(self) -> None:
        """Raise ``BusbarError`` for an invalid option, before anything is written."""
        access_of(self.sbatch)
        if not self.reservation.isprintable():
            raise refused(__file__, "not-a-name", "--reservation", name=self.reservation)

    @property
    def access(self) -> tuple[str, ...]:
        """Options of sbatch, one for each line of a job script."""
        if not self.reservation:
            return access_of(self.sbatch)
        return access_of(f"{self.sbatch} --reservation={shlex.quote(self.reservation)}")

    @property
    def immediate(self) -> tuple[str, ...]:
        """The option of ``srun`` and ``salloc`` that limits the wait."""
        return () if self.max_pending_s is None else (f"--immediate={self.max_pending_s}",)


@dataclass(frozen=True)
class Grant:
    """The nodes that a wish names."""

    partitions: tuple[Partition, ...]
    nodes: Mapping[str, tuple[Node, ...]]
    """By partition; also those that cannot be used now."""
    held: Allocation | None = None
    """The allocation that has them, which this process runs in."""

    @property
    def partition(self) -> Partition:
        """The partition, if it is one."""
        (partition,) = self.partitions
        return partition

    @property
    def usable(self) -> tuple[str, ...]:
        """The nodes that Slurm can give."""
        return tuple(n.name for part in self.nodes.values() for n in part if n.usable)

    @property
    def unusable(self) -> tuple[str, ...]:
        """The nodes that Slurm starts no job on, with their state."""
        return tuple(n.described for part in self.nodes.values() for n in part if not n.usable)


def without_slurm(site: Site, where: str) -> BusbarError:
    """Return the error for a site of one host."""
    return refused(__file__, "no-slurm", where, site=site.name)


def granted(site: Site, wish: Wish, *, one: bool = False, needed: bool = True) -> Grant:
    """Return the nodes of a wish; raise ``BusbarError`` if the cluster does not have them.

    They are of all partitions of the site, or of the only one if ``one`` is true. Inside an
    allocation they are its nodes. If they are not ``needed``, there may be none.
    """
    scheduler = scheduler_of(site.scheduler)
    if not scheduler.has_nodes:
        raise without_slurm(site, "--site")
    if held := scheduler.allocation():
        if wish.reservation or wish.sbatch or wish.max_pending_s is not None:
            where = "--reservation, --sbatch, --max-pending"
            raise refused(__file__, "inside-a-job", where, job=held.job)
        partition = partition_of(site, held.partition, wish.partition)
        hint = f"the job has {', '.join(held.nodes)}"
        names = _named(wish, held.nodes, f"among the nodes of job {held.job}", hint)
        nodes = tuple(Node(name, "allocated") for name in names)
        return Grant((partition,), {partition.name: nodes}, held)
    partitions = site.partitions
    if one or wish.partition:
        partitions = (partition_of(site, "", wish.partition),)
    listed = {each.name: scheduler.nodes(queue_of(each)) for each in partitions}
    queues = ", ".join(map(queue_of, partitions))
    known = [node.name for part in listed.values() for node in part]
    if needed and not known:
        which_one = "no-answer" if which("sinfo") else "no-sinfo"
        raise refused(__file__, which_one, f"site {site.name}", queues=queues)
    names = _named(wish, known, f"in {queues}", "sinfo -N lists the nodes of each partition")
    return Grant(
        partitions,
        {name: tuple(n for n in part if n.name in names) for name, part in listed.items()},
    )


def _named(wish: Wish, known: Sequence[str], whose: str, hint: str) -> list[str]:
    """Return the known nodes, or the ones that the user names."""
    if not wish.nodelist:
        return list(known)
    named = expand(wish.nodelist, "--nodelist")
    if missing := sorted(set(named) - set(known), key=named.index):
        raise BusbarError(f"{', '.join(missing)} not {whose}", where="--nodelist", hint=hint)
    return named


def partition_of(site: Site, queue: str, name: str) -> Partition:
    """Return the named partition; without a name, the only one or the current job's.

    ``queue`` is Slurm's partition of that job, empty outside.
    """
    possible = [each for each in site.partitions if queue in ("", queue_of(each))]
    if not possible:
        raise refused(__file__, "other-partition", f"site {site.name}", queue=queue)
    fitting = [each for each in possible if name in ("", each.name)]
    if len(fitting) == 1 or (queue and fitting):
        return fitting[0]
    names = [each.name for each in possible]
    require_known("no partition", name or names[0], names, "--partition")
    raise refused(__file__, "several", "--partition", names=names)


@cache
def sbatch_options() -> frozenset[str]:
    """Return the options of sbatch: ``--account``, ``-A``."""
    return frozenset(load_yaml(Path(__file__).with_name("sbatch.yaml")).split())


def access_of(sbatch: str) -> tuple[str, ...]:
    """Return the options in ``--sbatch``, one for each line of a job script."""
    options: list[str] = []
    for word in _split(sbatch, "--sbatch"):
        if not word.isprintable() or not (word.startswith("-") or options):
            raise refused(__file__, "not-an-option", "--sbatch", word=word)
        if word.startswith("-"):
            options.append(shlex.quote(word))
        else:
            options[-1] += f" {shlex.quote(word)}"
    return tuple(options)


def slurm_options(partition: Partition, added: Sequence[str]) -> list[str]:
    """Return the options that give access to a partition, in addition to ``added``."""
    options = [*partition.access, *added]
    words = " ".join(options).split()
    if not named_queue(options):
        options.insert(0, f"--partition={partition.name}")
    if partition.exclusive and not any(word.startswith("--exclusive") for word in words):
        options.append("--exclusive")
    return options


def words_of(partition: Partition, wish: Wish) -> list[str]:
    """Return the options that give a job access to a partition, as words of a command."""
    text = " ".join(slurm_options(partition, wish.access))
    return _split(text, f"access of partition {partition.name}")


def _split(text: str, where: str) -> list[str]:
    with value_error(f"{{}} in {text!r}", where, "quote it"):
        return shlex.split(text)


def run_in_job(grant: Grant, wish: Wish, name: str, command: Sequence[str], seconds: float) -> int:
    """Run a command in a job on the usable nodes; return its exit status.

    The job survives the failure of a node. It ends with this process, and after ``seconds``,
    unless the site or the user gives another ``--time``.
    """
    minutes = math.ceil(min(seconds, Slurm().longest_s(queue_of(grant.partition))) / 60)
    options = [f"--time={minutes}", *words_of(grant.partition, wish), *wish.immediate]
    options += [f"--job-name={name}", "--no-kill", f"--nodes={len(grant.usable)}"]
    words = ["salloc", *options, f"--nodelist={','.join(grant.usable)}", *command]
    return subprocess.run(words, check=False).returncode
