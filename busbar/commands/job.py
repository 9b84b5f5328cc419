# SPDX-License-Identifier: MIT
"""``busbar job``: find out why a running job is slow or stuck, without restarting it."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from busbar.boundary import regular, replace_file
from busbar.commands.declare import show
from busbar.errors import file_error
from busbar.job.inspector import judge_inspector
from busbar.job.judge import JobAnswer, judge
from busbar.job.node.process import ANY_RANK
from busbar.job.nodes import commands_of, observe
from busbar.job.sample import NodeSample, read_sample
from busbar.parse.tables import refused
from busbar.report.job import job_metrics, print_job
from busbar.slurm.client import parts_of_job
from busbar.slurm.hostlist import expand
from busbar.slurm.nodes import value_of
from busbar.terminal import stdout
from busbar.verdict import exit_status

_ID = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,9})?")
"""ID of a process, a job, an array task, or a component of a heterogeneous job."""
_COST = 0.01
"""Mean number of CPUs that the collector of --watch may use."""
_MOST_LINE = 1 << 16


def job(args: argparse.Namespace) -> int:
    """Find out why a running job is slow or stuck, without restarting it.

    Observes the processes of the job on all its nodes for some seconds, with the rights of the
    calling user, and names what delays it: a stopped or late rank, CPUs used by others, a quota, a
    slow network path, TCP instead of shared memory, a full file system, or a GPU. Changes, stops
    and traces nothing. For a Slurm job, runs as a step of the job (srun --overlap).

    {EXIT_STATUSES}

    Examples:

        busbar job 4711
        busbar job --stacks --seconds 10 4711
        busbar job --json 12345 12346
        busbar job --inspector a.log --inspector b.log
    """
    if args.inspector:
        return _show(judge_inspector(str(args.inspector[0]), map(_lines, args.inspector)), args)
    parts, job_id, pids, name = _target(args)
    shell = args.shell.split() if job_id == ANY_RANK else ()
    commands = [row for part in parts.items() for row in commands_of(job_id, *part, shell)]
    asked = {"job": job_id, "pids": pids, "stacks": args.stacks, "recorder": args.recorder}
    count, used_s, begin = max(sum(map(len, parts.values())), 1), 0.0, time.monotonic()
    while True:
        share = used_s / (time.monotonic() - begin) if used_s else None
        samples: list[NodeSample] = []
        lines, errors = observe(commands, args.seconds, **asked)
        for line in lines:
            try:
                samples.append(read_sample(line))
            except ValueError as error:
                errors.append(f"a node printed an unexpected document: {error}")
        if not samples:
            said = errors[0] if errors else "the nodes printed nothing"
            raise refused(__file__, "no-node", name, said=said)
        # srun warns about options that the cluster does not support.
        answer = judge(name, samples, errors if len(samples) < count else ())
        answer = replace(answer, collector_cpus=share)
        used_s += answer.collector_cpu_s
        status = _show(answer, args)
        if not args.watch or not answer.ranks:
            return status
        time.sleep(max(args.seconds, answer.collector_cpu_s / _COST - answer.seconds))


def _lines(path: str) -> Iterator[str]:
    with ExitStack() as stack:
        stack.enter_context(file_error("cannot be read", path, "pass Inspector files"))
        file = stack.enter_context(open(path, errors="replace", opener=regular))
        yield from iter(partial(file.readline, _MOST_LINE), "")


def _target(args: argparse.Namespace) -> tuple[dict[str, list[str]], str, list[int], str]:
    """Return the nodes, the job or processes to observe, and their name.

    Nodes (none for this host) are keyed by component of a heterogeneous job.
    """
    nodes = expand(args.nodelist, "--nodelist") if args.nodelist else []
    if nodes and not args.jobs:
        return {"": nodes}, ANY_RANK, [], args.nodelist
    if not args.jobs:
        raise refused(__file__, "no-job", "JOB")
    if wrong := [each for each in args.jobs if not _ID.fullmatch(each)]:
        raise refused(__file__, "no-id", "JOB", word=wrong[0])
    name = " ".join(args.jobs)
    lines = parts_of_job(name).splitlines() if len(args.jobs) == 1 else []
    running = [line for line in lines if value_of(line, "JobState") == "RUNNING"]
    # All components have the ID of the first one in their environment.
    ids = {value_of(line, "HetJobId") or value_of(line, "JobId") for line in running}
    if len(ids) > 1:
        raise refused(__file__, "array", "JOB", count=len(ids), name=name)
    parts: dict[str, list[str]] = {}
    for line in running:
        hosts = expand(value_of(line, "NodeList"), f"job {name}")
        seen = {host for each in parts.values() for host in each}
        if hosts := [h for h in hosts if h in (nodes or hosts) and h not in seen]:
            parts[value_of(line, "HetJobOffset")] = hosts
    if parts:
        return parts, ids.pop(), [], name
    if running:
        raise refused(__file__, "elsewhere", "--nodelist")
    if missing := next((each for each in args.jobs if not Path(f"/proc/{each}").exists()), None):
        state = f"; Slurm says {value_of(lines[0], 'JobState')}" if lines else ""
        raise refused(__file__, "not-running", "JOB", id=missing, state=state)
    return {"": []}, "", [int(each) for each in args.jobs], name


def _show(answer: JobAnswer, args: argparse.Namespace) -> int:
    if args.prometheus:
        path = Path(args.prometheus)
        with file_error("cannot be written", path, "choose another --prometheus"):
            replace_file(path, job_metrics(answer, os.environ.get("SLURM_CLUSTER_NAME", "")))
    show(args, answer, partial(print_job, terminal=stdout()))
    return exit_status(answer.verdict)
