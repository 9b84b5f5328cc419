# SPDX-License-Identifier: MIT
"""One night at a time on the nodes of a partition, whoever starts it and wherever.

All hosts and users of a cluster share the queue of Slurm, so the lock is a job in it that never
starts: its begin time is ``_LEASE_S`` ahead, and moves on while the night runs. The job of a night
whose host died becomes due and ends at once, so that nobody has to remove it. Of two nights that
start at the same time, the one with the lower job id goes on.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from busbar.check.cluster import nodes_of
from busbar.check.slurm import answer
from busbar.check.surroundings import environment_of_jobs
from busbar.check.target import Wish
from busbar.errors import BusbarError
from busbar.measure.place import Place, options_of
from busbar.parse import numbers
from busbar.site.queue import queue_of

NAME = "busbar-night"
"""The name of the jobs that are locks."""
_LEASE_S = 900
_RENEW_S = 60
_FAILURES = 3
"""So many renewals may fail, as while the controller restarts."""
_SLACK_S = 120
"""How far the clocks of a cluster may differ."""
_TIMEOUT_S = 30
_FORMAT = "--Format=JobID:20,UserName:64,EligibleTime:24,Partition:64,State:16,Comment:500"
_ROW = re.compile(
    r"(?P<job>\d+)\s+(?P<user>\S+)\s+(?P<begin>\d+)\s+(?P<partition>\S+)\s+PENDING"
    r"(?:\s+(?P<comment>.*))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, which the comment of the job names."""

    host: str
    process: int
    start: str
    """When it started, by the kernel: numbers of processes are used again."""
    namespace: str
    """Of process numbers: containers may share the name of a host."""

    @property
    def dead(self) -> bool:
        """Whether this host knows that the process has ended."""
        if (self.host, self.namespace) != (socket.gethostname(), _namespace()):
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass  # it is of another user
        return _start_of(self.process) not in ("", self.start)


@dataclass(frozen=True)
class _Lock:
    job: int
    user: str
    partition: str
    holder: Holder | None

    @property
    def described(self) -> str:
        process = f"process {self.holder.process} on {self.holder.host}, " if self.holder else ""
        return f"{process}user {self.user}, lock job {self.job}"


@contextmanager
def one_night(place: Place, wish: Wish, tell: Callable[[str], None]) -> Iterator[None]:
    """Keep other nights from the nodes; raise ``BusbarError`` if one tests some of them.

    A job that may not submit others goes on without a lock: Slurm gives its nodes to nobody else.
    """
    job, refusal = _submit(place, wish)
    if job is None and not place.held:
        raise BusbarError(
            f"Slurm refused the job that locks the partition: {refusal}",
            where=f"partition {place.partition.name}",
            hint="correct access in site.yaml, or --sbatch",
        )
    if job is None:
        tell(f"no lock, so that a second night would not be noticed: {refusal}")
    ended = threading.Event()
    try:
        _refuse_second(place, job)
        if job is not None:
            threading.Thread(target=_renew, args=(job, ended, tell), daemon=True).start()
        yield
    finally:
        ended.set()
        if job is not None:
            answer(["scancel", str(job)])


def _submit(place: Place, wish: Wish) -> tuple[int | None, str]:
    """Submit a lock; return its job, or why Slurm refused it."""
    me = os.getpid()
    holder = Holder(socket.gethostname(), me, _start_of(me), _namespace())
    options = [
        *options_of(place.partition, wish),
        *("--parsable", f"--job-name={NAME}", f"--begin=now+{_LEASE_S}", "--time=1"),
        *("--nodes=1", "--ntasks=1", "--no-requeue", "--chdir=/", "--output=/dev/null"),
        *(f"--comment={json.dumps(asdict(holder))}", "--wrap=:"),
    ]
    try:
        done = subprocess.run(
            ["sbatch", *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=environment_of_jobs(),
        )
    except OSError as error:
        return None, f"sbatch: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        return None, f"sbatch does not answer within {_TIMEOUT_S} s"
    job = numbers.whole(done.stdout.strip().partition(";")[0])
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return job, "; ".join(lines) or f"sbatch ended with exit status {done.returncode}"


def _refuse_second(place: Place, mine: int | None) -> None:
    """Raise ``BusbarError`` if an earlier lock is on some of the nodes."""
    locks = _locks()
    if mine is not None and mine not in [lock.job for lock in locks]:
        raise BusbarError(
            f"squeue does not list job {mine}, the lock of this night",
            where=f"partition {place.partition.name}",
            hint="start again when Slurm answers",
        )
    ours = _nodes(queue_of(place.partition))
    for lock in sorted(locks, key=lambda lock: lock.job):
        if lock.job == mine:
            return
        if lock.holder and lock.holder.dead:
            continue  # what a comment says is no reason to cancel a job; it ends by itself
        theirs = _nodes(lock.partition)
        if not theirs or not ours or theirs & ours:
            raise BusbarError(
                f"another night tests nodes of this partition ({lock.described})",
                where=f"partition {place.partition.name}",
                hint=f"wait for it; without its process the lock ends in {_LEASE_S // 60} minutes"
                f" by itself, or with scancel {lock.job}",
            )


def _locks() -> list[_Lock]:
    """Return the jobs of the queue that are locks, without those that are due.

    The reason for which a job waits is not reliable: on busy nodes it is ``Resources`` at first.
    """
    text = answer(
        ["env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", f"--name={NAME}", _FORMAT],
        _TIMEOUT_S,
    )
    now = time.time()
    rows = [row for line in text.splitlines() if (row := _ROW.fullmatch(line.strip()))]
    return [
        _Lock(
            numbers.count(row["job"]), row["user"], row["partition"], _holder(row["comment"] or "")
        )
        for row in rows
        if -_SLACK_S < numbers.count(row["begin"]) - now < _LEASE_S + _SLACK_S
    ]


def _holder(comment: str) -> Holder | None:
    with suppress(ValueError):  # also pydantic's
        return _holders().validate_json(comment)
    return None


def _nodes(queue: str) -> set[str]:
    return {node.name for node in nodes_of(queue)}


def _renew(job: int, ended: threading.Event, tell: Callable[[str], None]) -> None:
    """Move the begin time of a lock on until the night has ended."""
    failures = 0
    while not ended.wait(_RENEW_S):
        failures = 0 if _moved(job) else failures + 1
        if failures == _FAILURES:
            tell(f"lock job {job} cannot be renewed: a second night may start")


def _moved(job: int) -> bool:
    command = ["scontrol", "update", f"JobId={job}", f"StartTime=now+{_LEASE_S}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _start_of(process: int) -> str:
    """Return when a process started, in ticks since the boot; empty if this is not known."""
    try:
        text = Path("/proc", str(process), "stat").read_text(errors="replace")
    except OSError:
        return ""
    _, _, fields = text.rpartition(")")  # a name may contain anything
    return fields.split()[19]


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


@cache
def _holders() -> TypeAdapter[Holder]:
    return TypeAdapter(Holder)
