# SPDX-License-Identifier: MIT
"""Queries to a scheduler in addition to ReFrame's, and Slurm's answers.

ReFrame submits jobs, and supports more schedulers. With the ones that Busbar cannot query, the
scheduler chooses the nodes, and ReFrame reports the end of a job.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from busbar.errors import BusbarError
from busbar.program import ANSWER_S, call
from busbar.slurm.hostlist import hostnames
from busbar.slurm.jobs import WAITING_FORMAT, JobEnd, parse_end, parse_waiting
from busbar.slurm.nodes import FORMAT, Hardware, Node, parse_hardware, parse_nodes, value_of
from busbar.slurm.topology import leaf_switches_in
from busbar.units import duration

_CANCEL_S = 5
_LOOKS = 5
_LOOK_S = 0.2
_FIRST_S = 10
"""Shorter waits are usual."""
_AGAIN_S = 600
_POLL_S = 5


@dataclass(frozen=True)
class Allocation:
    """The allocation of the scheduler that this process runs in."""

    job: str
    partition: str
    nodes: tuple[str, ...]


class Scheduler:
    """What Busbar asks a scheduler; these are the answers of one that only ReFrame knows."""

    has_nodes = False
    """Whether its nodes can be listed, named and measured."""

    def nodes(self, _queue: str) -> tuple[Node, ...]:
        """Return the nodes of a partition or queue; none if it does not exist."""
        return ()

    def allocation(self) -> Allocation | None:
        """Return the allocation that this process runs in, if any."""
        return None

    def job_end(self, _job: str) -> JobEnd | None:
        """Return the end of a job; None if the scheduler has forgotten it."""
        return None

    def held_nodes(self, _job: str) -> str:
        """Return the nodes that a job which is completing still holds; empty if not known."""
        return ""


class Slurm(Scheduler):
    """Slurm, by its programs; nothing where they are missing or do not answer."""

    has_nodes = True

    def nodes(self, queue: str) -> tuple[Node, ...]:
        """Return the nodes of a partition, of all without a name; none if it does not exist."""
        part = [f"--partition={queue}"] if queue else []
        return parse_nodes(answer("sinfo", "--noheader", "--Node", *part, FORMAT))

    def allocation(self) -> Allocation | None:
        """Return the allocation of ``salloc`` or ``sbatch`` that this process runs in, if any."""
        job = os.environ.get("SLURM_JOB_ID", "")
        if not job or not shutil.which("srun"):
            return None
        # Of an array, Slurm prints a line for each task.
        lines = self.show_job(job).splitlines()
        line = next((line for line in lines if line.startswith(f"JobId={job} ")), "")
        partition, nodes = value_of(line, "Partition"), value_of(line, "NodeList")
        if not (partition and nodes and value_of(line, "JobState") == "RUNNING"):
            return None
        if value_of(line, "HetJobId"):
            what = f"job {job} is heterogeneous: a step can use the nodes of only one component"
            hint = "run in a homogeneous job, or outside the job"
            raise BusbarError(what, where="SLURM_JOB_ID", hint=hint)
        return Allocation(job, partition, hostnames(nodes))

    def job_end(self, job: str) -> JobEnd | None:
        """Return the end of a job; None if Slurm has forgotten it."""
        return parse_end(self.show_job(job))

    def held_nodes(self, job: str) -> str:
        """Return the nodes that a job which is completing still holds."""
        return answer("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()

    def hardware(self) -> tuple[Hardware, ...]:
        """Return all nodes of the cluster with their hardware; none if Slurm does not answer."""
        try:
            return parse_hardware(answer("scontrol", "--oneliner", "show", "node"))
        except ValueError:  # no answer, or an error of scontrol instead of nodes
            return ()

    def default_queue(self) -> str:
        """Return the partition of jobs that name none; empty if there is none."""
        lines = answer("sinfo", "--noheader", "--format=%P").split()
        return next((name[:-1] for name in lines if name.endswith("*")), "")

    def longest_s(self, queue: str) -> float:
        """Return the time limit of a partition in seconds; infinity if it has none."""
        line = answer("scontrol", "--oneliner", "show", "partition", queue)
        return duration(value_of(line, "MaxTime")) or math.inf

    def topology(self) -> str:
        """Return the leaf switches and blocks as ``topology.conf`` has them."""
        return leaf_switches_in(answer("scontrol", "show", "topology"))

    @staticmethod
    def show_job(job: str) -> str:
        """Return a line for the job, each task of an array, or each part of a het job."""
        return answer("scontrol", "--oneliner", "show", "job", job)


def parts_of_job(job: str) -> str:
    """Return what ``show_job`` does without texts of the job's user, which may look like keys."""
    form = "--format=JobId=%A Part=%i JobState=%T NodeList=%N"
    text = answer("squeue", "--noheader", "--all", "--states=all", f"--jobs={job}", form)
    first = r" Part=(?P<first>\d+)\+(?P<offset>\d+) "
    return re.sub(first, r" HetJobId=\g<first> HetJobOffset=\g<offset> ", text)


def scheduler_of(name: str) -> Scheduler:
    """Return the scheduler that ReFrame has under a name."""
    return Slurm() if name in ("slurm", "squeue") else Scheduler()


def answer(*command: str, seconds: float = ANSWER_S) -> str:
    """Return what a program of Slurm prints; nothing if it is missing or does not answer."""
    return call(command, seconds).stdout


def cluster_name() -> str:
    """Return the name of the cluster of this host; empty if Slurm does not answer."""
    return setting("ClusterName")


def setting(name: str) -> str:
    """Return what ``slurm.conf`` has under a name; empty if Slurm does not answer."""
    config = answer("scontrol", "show", "config")
    line = re.search(rf"^{name}\s*=\s*(?P<value>\S+)", config, re.MULTILINE)
    return line["value"] if line else ""


def few_cpus(ranks: int) -> bool:
    """Return whether a node of the job of this process has fewer CPUs than ranks.

    ``SLURM_JOB_CPUS_PER_NODE`` has the form ``4(x3),2``.
    """
    text = os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")
    counts = re.finditer(r"(?:^|,)(?P<cpus>\d{1,9})", text)
    return min((int(each["cpus"]) for each in counts), default=ranks) < ranks


def cancel(*words: str) -> None:
    """Cancel jobs; ``words`` are options of ``scancel`` and job IDs."""
    answer("scancel", *words, seconds=_CANCEL_S)


def cancel_jobs(directory: Path) -> None:
    """Cancel the jobs of this user that were submitted from below a directory, also queued ones.

    SIGKILL follows for those that do not end of SIGTERM.
    """
    if not shutil.which("squeue"):
        return
    for options in ([], ["--full", "--signal=KILL"]):
        for look in range(_LOOKS):
            jobs = _jobs(directory)
            if not jobs:
                return
            if not look:
                cancel(*options, *jobs)
            time.sleep(_LOOK_S)


def _jobs(directory: Path) -> list[str]:
    jobs = (line.strip().partition("|") for line in _own_jobs("--format=%A|%Z").splitlines())
    return [job for job, _, place in jobs if Path(place).is_relative_to(directory)]


def _own_jobs(form: str) -> str:
    return answer("squeue", "--noheader", f"--user={os.getuid()}", form, seconds=_CANCEL_S)


@contextmanager
def waiting_shown(directory: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Tell which jobs from below a directory wait, and for what, while the block runs."""
    done = threading.Event()

    def watch() -> None:
        first: dict[str, float] = {}
        last: dict[str, tuple[str, float]] = {}
        while not done.wait(_POLL_S):
            now = time.monotonic()
            for each in parse_waiting(_own_jobs(WAITING_FORMAT), directory):
                key = f"{each.job} {each.state}"
                line, shown_at = last.get(key, ("", 0.0))
                new = each.text != line or now - shown_at > _AGAIN_S
                if now - first.setdefault(key, now) >= _FIRST_S - _POLL_S and new:
                    last[key] = (each.text, now)
                    tell(each.text)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=_POLL_S)
