# SPDX-License-Identifier: MIT
"""``busbar job``: why a running job is slow or stuck, without restarting it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from busbar.arguments import option
from busbar.boundary import replace_file
from busbar.commands.declare import JSON, PROMETHEUS, command
from busbar.document import to_json
from busbar.errors import BusbarError, file_error
from busbar.job.judge import JobAnswer, judge
from busbar.job.nodes import commands_of, observe
from busbar.job.sample import NodeSample, read_sample
from busbar.parse import numbers
from busbar.report.job import job_metrics, print_job
from busbar.slurm.client import Slurm
from busbar.slurm.hostlist import expand, hostnames
from busbar.terminal import stdout
from busbar.verdict import exit_status

_LEAST_S, _MOST_S = 1.0, 60.0


def add_parser(subparsers: Any) -> None:
    """Add ``busbar job``."""
    command(
        subparsers,
        _run,
        option("JOB...", "a job of Slurm, or process ids on this host", dest="jobs"),
        option(
            "--seconds S",
            f"how long to look, {_LEAST_S:g} to {_MOST_S:g}",
            type=_seconds,
            default=5.0,
        ),
        option("--watch", "look again and again until the job ends"),
        option(
            "--stacks", "also ask py-spy for the Python stack of each rank, which pauses the rank"
        ),
        option(
            "--nodelist NODES",
            "only these nodes of the job; without JOB, all ranks of this user there, by --shell",
            default="",
        ),
        option(
            "--shell COMMAND", "what starts a command on a node", default="ssh -o BatchMode=yes"
        ),
        PROMETHEUS,
        JSON,
        name="job",
        documented=job,
    )


def _seconds(text: str) -> float:
    value = numbers.real(text)
    if value is None or not _LEAST_S <= value <= _MOST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not {_LEAST_S:g} to {_MOST_S:g} seconds")
    return value


def _run(args: argparse.Namespace) -> int:
    return job(args)


def job(args: argparse.Namespace) -> int:
    """Say why a running job is slow or stuck, without restarting it.

    Looks at the processes of the job for some seconds, on all its nodes, with the rights of the
    user who calls it, and names what holds it up: a stopped or late rank, CPUs that others use, a
    quota, a slow network path, TCP instead of shared memory, a full file system, a GPU. Nothing is
    changed, stopped or traced. With a job of Slurm it runs a step of it (srun --overlap).

    {EXIT_STATUSES}

    Examples:

        busbar job 4711
        busbar job --stacks --seconds 10 4711
        busbar job --json 12345 12346
    """
    commands, options, name = _target(args)
    options = [*options, "--seconds", str(args.seconds), *(["--stacks"] if args.stacks else [])]
    while True:
        answer = _look(commands, options, args.seconds, name)
        _show(answer, args)
        if not args.watch or not answer.ranks:
            return exit_status(answer.verdict)
        time.sleep(max(args.seconds, 5.0))


def _target(args: argparse.Namespace) -> tuple[list[list[str]], list[str], str]:
    """Return what starts the collector, its options, and the name of the job."""
    if not args.jobs and args.nodelist:
        hosts = expand(args.nodelist, "--nodelist")
        return commands_of("", hosts, args.shell.split()), ["--job", "ranks"], args.nodelist
    if not args.jobs:
        raise BusbarError("no job given", hint="name a job of Slurm or process ids")
    if wrong := next((each for each in args.jobs if not numbers.is_whole(each)), None):
        hint = "write a number, such as 4711; of an array, the JobId that scontrol show job prints"
        raise BusbarError(f"{wrong!r} is not a job or process id", where="JOB", hint=hint)
    known = Slurm().job_end(args.jobs[0]) if len(args.jobs) == 1 else None
    if known and known.state == "RUNNING":
        listed = tuple(expand(args.nodelist, "--nodelist")) if args.nodelist else ()
        nodes = listed or hostnames(known.nodes)
        return commands_of(args.jobs[0], tuple(nodes), ()), ["--job", args.jobs[0]], args.jobs[0]
    if missing := next((each for each in args.jobs if not Path(f"/proc/{each}").exists()), None):
        what = f"no running job and no process has the id {missing}"
        state = f"; Slurm says {known.state}" if known else ""
        raise BusbarError(f"{what}{state}", where="JOB", hint="look at squeue --me and ps")
    return commands_of("", (), ()), ["--pids", ",".join(args.jobs)], " ".join(args.jobs)


def _look(
    commands: Sequence[Sequence[str]], options: Sequence[str], seconds: float, name: str
) -> JobAnswer:
    lines, errors = observe(commands, options, seconds)
    samples: list[NodeSample] = []
    for line in lines:
        try:
            samples.append(read_sample(line))
        except ValueError as error:
            errors.append(f"a node printed another document: {error}")
    if not samples:
        said = errors[0].splitlines()[-1] if errors else "they printed nothing"
        hint = "Python 3.8 or newer must be on PATH there"
        raise BusbarError(f"no node was observed: {said}", where=name, hint=hint)
    return judge(name, samples, [each.splitlines()[-1] for each in errors])


def _show(answer: JobAnswer, args: argparse.Namespace) -> None:
    if args.prometheus:
        path = Path(args.prometheus)
        with file_error("cannot be written", path, "choose another --prometheus"):
            replace_file(path, job_metrics(answer, os.environ.get("SLURM_CLUSTER_NAME", "")))
    if args.json:
        stdout().document(to_json(answer), indent=0 if args.watch else 1)
    else:
        print_job(answer, stdout())
