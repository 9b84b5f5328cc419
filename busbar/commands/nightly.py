# SPDX-License-Identifier: MIT
"""``busbar nightly``: gate, sweep and checks of a partition, one after the other."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.boundary import replace_file
from busbar.check.default_site import default_site
from busbar.check.processes import Interruption
from busbar.check.surroundings import own, refuse_without_space
from busbar.cluster.nightly.night import (
    STAGES,
    Night,
    NightlyDocument,
    StageName,
    begin,
    last,
    rotate,
    summary,
)
from busbar.cluster.nightly.process import GRACE_S
from busbar.cluster.nightly.run import Runner
from busbar.cluster.nightly.stages import NightJob
from busbar.commands.cluster_options import choice_of, output_of, tell, wish_of
from busbar.commands.declare import command
from busbar.document import to_json
from busbar.errors import BusbarError, of_os
from busbar.report.junit import junit_of_night
from busbar.slurm.options import granted
from busbar.terminal import stdout
from busbar.verdict import exit_status

_HOUR_S = 3600
_MOST_AGE = timedelta(days=1)
"""Of a night that can be resumed."""


def add_parser(subparsers: Any) -> None:
    """Add ``busbar nightly``."""
    command(subparsers, nightly)


def nightly(args: argparse.Namespace) -> int:
    """Gate, sweep and check a partition of Slurm, one after the other.

    Runs busbar gate on each node, busbar sweep run, busbar check on every node, and its nightly
    set on a sample of them. Nodes that fail the gate are left out of the other stages. Inside a
    job its nodes are tested, else each stage submits its own jobs. Ends with a report and a
    summary.

    {EXIT_STATUSES} 128 + N after signal N. The verdict is the worst of all stages.

    Examples:

        busbar nightly --site alpha --partition gpu --output /shared/busbar/gpu
        busbar nightly --site alpha --stages gate,check --max-hours 4 --max-pending 3h
    """
    begun = time.monotonic()
    with output_of(args) as output, own(output):
        refuse_without_space(output)
        return _night(args, output, begun)


def _night(args: argparse.Namespace, output: Path, begun: float) -> int:
    name = args.site or default_site(output, tell)
    site = sites.load(name)
    wish, choice = wish_of(args), choice_of(args)
    grant = granted(site, wish, one=True)
    if not grant.usable:
        raise BusbarError(
            "Slurm can start no job on any of its nodes",
            where=f"partition {grant.partition.name}",
            hint="sinfo -N lists the nodes and their states",
        )
    now = datetime.now(UTC)
    state = NightlyDocument(
        site=site.name,
        partition=grant.partition.name,
        begun=now.isoformat(timespec="seconds"),
        names=_names(args.stages, args.sample),
        unusable=grant.unusable,
        output="",
    )
    if args.resume:
        state = _resumed(last(output), state)
    interruption: Interruption = args.interruption
    interruption.grace = GRACE_S
    deadline = None if args.max_hours is None else begun + args.max_hours * _HOUR_S
    # A step of Slurm may start in another directory.
    where = str(Path(name).absolute()) if "/" in name else name
    night = last(output) if args.resume else begin(output, now)
    tell(f"night {night.directory}: {len(grant.usable)} nodes")
    job = NightJob(night, where, grant, wish, choice, args.limit, site.nodes, deadline)
    with interruption.held():
        state = Runner(job, args.sample, interruption, tell).run(state)
        if interruption.name:
            interruption.finish()
        return _conclude(args, night, state, interruption)


def _names(stages: Sequence[str], sample: int) -> tuple[StageName, ...]:
    wanted = {*stages, *(["sample"] if "check" in stages and sample else [])}
    return tuple(name for name in STAGES if name in wanted)


def _resumed(night: Night, state: NightlyDocument) -> NightlyDocument:
    """Return the state of the night to continue; what it is of must not have changed."""
    earlier = night.load()
    if datetime.now(UTC) - datetime.fromisoformat(earlier.begun).astimezone(UTC) > _MOST_AGE:
        raise BusbarError(
            "began more than a day ago, and its results are not those of now",
            where=str(night.directory),
            hint="omit --resume to start a new night",
        )
    if (earlier.site, earlier.partition) != (state.site, state.partition):
        raise BusbarError(
            f"is of site {earlier.site}, partition {earlier.partition}",
            where=str(night.directory),
            hint="continue it with these, or omit --resume",
        )
    return replace(
        state,
        begun=earlier.begun,
        stages=tuple(e for e in earlier.stages if e.name in state.names),
    )


def _conclude(
    args: argparse.Namespace, night: Night, state: NightlyDocument, interruption: Interruption
) -> int:
    lines = summary(night, state)
    text = junit_of_night(night, state)
    files = [(night.path("summary.txt"), "\n".join(lines) + "\n"), (night.path("junit.xml"), text)]
    for path, content in [*files, *([(args.junit, text)] if args.junit else [])]:
        try:
            replace_file(path, content)
        except OSError as error:  # the verdict must still be printed
            tell(str(of_os(error, "cannot be written", path)))
    for problem in rotate(args.output.resolve(), args.keep) if args.keep else ():
        tell(problem)
    try:
        if args.json:
            stdout().document(to_json(state))
        else:
            stdout().text("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError:  # nobody reads any more, but the exit status is the verdict
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return interruption.status if state.interrupted else exit_status(state.verdict)
