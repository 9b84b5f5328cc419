# SPDX-License-Identifier: MIT
"""One night at a time on the nodes of a partition, whoever starts it and wherever.

All hosts and users of a cluster share the queue of Slurm, so the lock is a job in it that never
starts: its begin time is ``_LEASE_S`` ahead, and moves on while the night runs. The job of a night
whose host died becomes due and ends at once, so that nobody has to remove it. Of two nights that
start at the same time, the one with the lower job id goes on. Anybody can submit a job of this
name: only those of this user, of root, of Slurm's own user and of the site's operators count.

No dependency of Slurm does this: ``singleton`` is for jobs of one user, and a night is no job but
a process that submits many.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.program import call
from busbar.site.queue import queue_of
from busbar.slurm.client import Slurm, answer, setting
from busbar.slurm.options import Grant, Wish, words_of

NAME = "busbar-night"
"""The name of the jobs that are locks."""
_LEASE_S = 900
_RENEW_S = 60
_FAILURES = 3
"""Renewals that may fail in a row, as while the controller restarts."""
_SLACK_S = 120
"""How far the clocks of a cluster may differ."""
_FORMAT = "--Format=JobID:20,UserName:64,EligibleTime:24,Partition:64,State:16,Comment:500"
_HOLDER = re.compile(r"(?P<process>process \d{1,9} on [\w.-]+) in ", re.ASCII)


class _Lock(NamedTuple):
    job: int
    user: str
    begin: int
    partition: str
    holder: str
    """The comment of the job: which process has it, and for which directory of nights."""

    def is_of(self, holder: str) -> bool:
        """Whether another process held it for a directory, which that of ``holder`` has now."""
        return self.holder.partition(" on ")[2] == holder.partition(" on ")[2]


@contextmanager
def one_night(
    grant: Grant, wish: Wish, operators: Sequence[str], output: Path, tell: Callable[[str], None]
) -> Iterator[None]:
    """Keep other nights from the nodes; raise ``BusbarError`` if one tests some of them.

    No other process of this host has the directory ``output``, so that an earlier lock for it is
    of a night that died. A job that may not submit others goes on without a lock: Slurm gives its
    nodes to nobody else.
    """
    where = f"partition {grant.partition.name}"
    holder = f"process {os.getpid()} on {socket.gethostname()} in {output} {output.stat().st_ino}"
    job, refusal = _submit(grant, wish, holder)
    if job is None:
        if not grant.held:
            raise BusbarError(
                f"Slurm refused the job that locks the partition: {refusal}",
                where=where,
                hint="correct access in site.yaml, or --sbatch",
            )
        tell(f"no lock, so that a second night would not be noticed: {refusal}")
    ended = threading.Event()
    try:
        if problem := _earlier(grant, job, operators, holder):
            raise BusbarError(problem[0], where=where, hint=problem[1])
        if job is not None:
            threading.Thread(target=_renew, args=(job, ended, tell), daemon=True).start()
        yield
    finally:
        ended.set()
        if job is not None:
            answer("scancel", str(job))


def _submit(grant: Grant, wish: Wish, holder: str) -> tuple[int | None, str]:
    """Submit a lock; return its job, or why Slurm refused it."""
    options = [
        *words_of(grant.partition, wish),
        *("--parsable", f"--job-name={NAME}", f"--begin=now+{_LEASE_S}", "--time=1"),
        *("--nodes=1", "--ntasks=1", "--no-requeue", "--chdir=/", "--output=/dev/null"),
        *(f"--comment={holder}", "--wrap=:"),
    ]
    # Variables of sbatch would change the job.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SBATCH_")}
    done = call(["sbatch", *options], env=environment)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    refusal = "; ".join(lines) or f"sbatch ended with exit status {done.returncode}"
    return numbers.whole(done.stdout.strip().partition(";")[0]), refusal


def _earlier(
    grant: Grant, mine: int | None, operators: Sequence[str], holder: str
) -> tuple[str, str] | None:
    """Return what is against this night, an earlier lock on some of the nodes, and what to do."""
    locks = sorted(_locks({_user(), "root", *operators}))
    if mine is not None and mine not in [lock.job for lock in locks]:
        what = f"squeue does not list job {mine}, the lock of this night"
        return what, "start again when Slurm answers"
    ours = _nodes(queue_of(grant.partition))
    for lock in locks:
        if lock.job == mine:
            break
        theirs = _nodes(lock.partition)
        # The lock of a night that died is not cancelled: anybody can write a comment.
        if not lock.is_of(holder) and (not theirs or not ours or theirs & ours):
            known = _HOLDER.match(lock.holder)
            process = f"{known['process']}, " if known else ""
            return (
                "another night tests nodes of this partition"
                f" ({process}user {lock.user}, lock job {lock.job})",
                f"wait for it; without its process the lock ends in {_LEASE_S // 60} minutes by"
                f" itself, or with scancel {lock.job}",
            )
    return None


def _locks(users: set[str]) -> Iterator[_Lock]:
    """Yield the jobs of the queue that are locks, without those that are due.

    The reason for which a job waits is not reliable: on busy nodes it is ``Resources`` at first.
    """
    users.add(setting("SlurmUser").partition("(")[0])
    text = answer("env", "SLURM_TIME_FORMAT=%s", "squeue", "--noheader", f"--name={NAME}", _FORMAT)
    now = time.time()
    for line in text.splitlines():
        job, user, begin, partition, state, comment = [*line.split(None, 5), *[""] * 6][:6]
        lock = _Lock(numbers.count(job), user, numbers.count(begin), partition, comment.strip())
        soon = -_SLACK_S < lock.begin - now < _LEASE_S + _SLACK_S
        if state == "PENDING" and user in users and soon:
            yield lock


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without an account, as in containers
        return str(os.getuid())


def _nodes(queue: str) -> set[str]:
    return {node.name for node in Slurm().nodes(queue)}


def _renew(job: int, ended: threading.Event, tell: Callable[[str], None]) -> None:
    """Move the begin time of a lock on until the night has ended."""
    failures = 0
    while not ended.wait(_RENEW_S):
        moved = call(["scontrol", "update", f"JobId={job}", f"StartTime=now+{_LEASE_S}"])
        failures = failures + 1 if moved.returncode else 0
        if failures == _FAILURES:
            tell(f"lock job {job} cannot be renewed: a second night may start")
