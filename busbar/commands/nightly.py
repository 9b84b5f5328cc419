# SPDX-License-Identifier: MIT
"""``busbar nightly``: run gate, sweep and checks on a partition."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from busbar import site as sites
from busbar.boundary import replace_file
from busbar.check.default_site import default_site
from busbar.check.names import short_name
from busbar.check.places import ring
from busbar.check.processes import Interruption
from busbar.check.surroundings import own, refuse_without_space
from busbar.cluster.nightly import night as nights
from busbar.cluster.nightly.process import GRACE_S
from busbar.cluster.nightly.run import Runner
from busbar.cluster.nightly.stages import NightJob, sample_of
from busbar.commands.declare import choice_of, output_of, show, tell, wish_of
from busbar.data import busbar
from busbar.document import to_json
from busbar.errors import BusbarError, of_os
from busbar.parse import numbers
from busbar.parse.tables import refused
from busbar.program import call
from busbar.report.junit import junit_of_night
from busbar.site.model import Site
from busbar.slurm.hostlist import expand, fold
from busbar.slurm.options import Grant, granted
from busbar.terminal import stdout
from busbar.verdict import Verdict, exit_status
from busbar.words import counted

_HOUR_S = 3600
_MOST_AGE = timedelta(days=1)
"""Maximum age of a night that can be resumed."""
_LIST_S = 120
_DOES: dict[str, tuple[str, int]] = {
    "gate": ("1 job: busbar gate on all of {nodes} at once", 10),
    "sweep": ("1 job: busbar sweep run on {nodes}, in rounds of {pairs} at once", 120),
}
"""With rough times in s."""
_CHECK_S = 10
"""Of a check on one node, roughly."""


def nightly(args: argparse.Namespace) -> int:
    """Gate, sweep and check a Slurm partition.

    Runs busbar gate on each node, busbar sweep run, busbar check on every node, and the nightly
    checks on a sample of nodes. Nodes that fail the gate are excluded from the other stages.
    Inside a job, tests the nodes of the job; otherwise each stage submits its own jobs. Writes a
    report and prints a summary.

    {EXIT_STATUSES} 128 + N after signal N. The verdict is the worst of all stages.

    Examples:

        busbar nightly --site alpha --partition gpu --output /shared/busbar/gpu
        busbar nightly --site alpha --stages gate,check --max-hours 4 --max-pending 3h
        busbar nightly --site alpha --partition gpu --dry-run
    """
    if args.dry_run:
        return _plan(args)
    begun = time.monotonic()
    with output_of(args) as output, own(output):
        refuse_without_space(output)
        return _night(args, output, begun)


def _plan(args: argparse.Namespace) -> int:
    """Print what the stages would do, on the nodes that Slurm or else site.yaml names."""
    place, wish, now = args.site or "local", wish_of(args), datetime.now(UTC)
    site = sites.load(place)
    grant = granted(site, wish, one=True, needed=False)
    partition, state = grant.partition, _begun(args, site, grant, now)
    nodes = grant.usable or expand(partition.nodelist or f"node[1-{partition.nodes}]", "nodelist")
    job = NightJob(nights.Night(args.output), place, grant, wish, choice_of(args))
    for name in state.names:
        tested = sample_of(nodes, args.sample, now.date()) if name == "sample" else nodes
        state = state.with_stage(_planned(name, job, tested))
    source = "Slurm" if grant.usable else "site.yaml; Slurm names none here"
    head = f"a night of {site.name}, partition {partition.name}: {len(nodes)} nodes ({source})"
    show(args, state, [head, *(f"{each.name}: {each.message}" for each in state.stages)])
    return 0


def _planned(name: nights.StageName, job: NightJob, nodes: Sequence[str]) -> nights.NightStage:
    """Return a stage that did not run; its message says what it would do on these nodes."""
    pairs = counted(len(nodes) // 2, "pair")
    tag = "nightly" if name == "sample" else "gate"
    text, seconds = _DOES[name] if name in _DOES else _checks(job, nodes, tag)
    text = text.format(nodes=fold(nodes), pairs=pairs)
    output = job.night.directory
    earlier = nights.finished(output)[-1:] if output.is_dir() else []
    before = next((stage for _, state in earlier if (stage := state.stage(name))), None)
    took = f"{before.seconds:.0f} s in the last night" if before else f"roughly {seconds} s"
    message = f"{text}; {took}"
    return nights.NightStage(name, Verdict.NOT_RUN, message, finished=False, nodes=tuple(nodes))


def _checks(job: NightJob, nodes: Sequence[str], tag: str) -> tuple[str, int]:
    """Return what the checks with a tag do, and rough seconds: nodes are tested side by side."""
    words = busbar("check", f"--site={job.site}", "--list", "--json", f"--tag={tag}", *job.stack)
    done = call(words, _LIST_S)
    if done.returncode:
        raise BusbarError(done.stderr.strip(), where="the checks", hint="see busbar check --list")
    rows = numbers.load_json(done.stdout)
    here = f"{job.grant.partition.name}+"
    runs = [row for row in rows if any(each.startswith(here) for each in row["runs_in"])]
    pairs, ways = ring(nodes), Counter(min(row["nodes"], 2) for row in runs)
    jobs = ways[1] * len(nodes) + ways[2] * len(pairs)
    kinds = Counter(short_name(row["name"]).split()[0] for row in runs)
    names = ", ".join(f"{name} x {n}" if n > 1 else name for name, n in kinds.items())
    where = f"{counted(ways[1], 'check')} on each of {fold(nodes)}"
    if pairs:
        where = f"{where} and {ways[2]} on each of {counted(len(pairs), 'pair')} of neighbours"
    return f"{counted(jobs, 'job')}: {where}: {names}", _CHECK_S * (ways[1] + 2 * ways[2])


def _begun(
    args: argparse.Namespace, site: Site, grant: Grant, now: datetime
) -> nights.NightlyDocument:
    """Return a night before its first stage."""
    return nights.NightlyDocument(
        site=site.name,
        partition=grant.partition.name,
        begun=now.isoformat(timespec="seconds"),
        names=_names(args.stages, args.sample),
        unusable=grant.unusable,
        output="",
    )


def _night(args: argparse.Namespace, output: Path, begun: float) -> int:
    name = args.site or default_site(output, tell)
    site = sites.load(name)
    wish, choice = wish_of(args), choice_of(args)
    grant = granted(site, wish, one=True)
    if not grant.usable:
        raise refused(__file__, "no-node", f"partition {grant.partition.name}")
    now = datetime.now(UTC)
    state = _begun(args, site, grant, now)
    if args.resume:
        state = _resumed(nights.last(output), state)
    interruption: Interruption = args.interruption
    interruption.grace = GRACE_S
    deadline = None if args.max_hours is None else begun + args.max_hours * _HOUR_S
    # A Slurm step may start in a different directory.
    where = str(Path(name).absolute()) if "/" in name else name
    night = nights.last(output) if args.resume else nights.begin(output, now)
    tell(f"night {night.directory}: {len(grant.usable)} nodes")
    job = NightJob(night, where, grant, wish, choice, args.limit, site.nodes, deadline)
    with interruption.held():
        state = Runner(job, args.sample, interruption, tell).run(state)
        if interruption.name:
            interruption.finish()
        return _conclude(args, night, state, interruption)


def _names(stages: Sequence[str], sample: int) -> tuple[nights.StageName, ...]:
    wanted = {*stages, *(["sample"] if "check" in stages and sample else [])}
    return tuple(name for name in nights.STAGES if name in wanted)


def _resumed(night: nights.Night, state: nights.NightlyDocument) -> nights.NightlyDocument:
    """Return the state of the night to continue, which must have the same site and partition."""
    earlier = night.load()
    if datetime.now(UTC) - datetime.fromisoformat(earlier.begun).astimezone(UTC) > _MOST_AGE:
        raise refused(__file__, "outdated", night.directory)
    if (earlier.site, earlier.partition) != (state.site, state.partition):
        words = {"site": earlier.site, "queue": earlier.partition}
        raise refused(__file__, "other-night", night.directory, **words)
    return replace(
        state,
        begun=earlier.begun,
        stages=tuple(e for e in earlier.stages if e.name in state.names),
    )


def _conclude(
    args: argparse.Namespace,
    night: nights.Night,
    state: nights.NightlyDocument,
    interruption: Interruption,
) -> int:
    lines = nights.summary(night, state)
    text = junit_of_night(night, state)
    files = [(night.path("summary.txt"), "\n".join(lines) + "\n"), (night.path("junit.xml"), text)]
    for path, content in [*files, *([(args.junit, text)] if args.junit else [])]:
        try:
            replace_file(path, content)
        except OSError as error:  # the verdict must still be printed
            tell(str(of_os(error, "cannot be written", path)))
    for problem in nights.rotate(args.output.resolve(), args.keep) if args.keep else ():
        tell(problem)
    try:
        if args.json:
            stdout().document(to_json(state))
        else:
            stdout().text("\n".join(lines) + "\n")
        sys.stdout.flush()
    except OSError:  # the reader is gone, but the exit status is the verdict
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return interruption.status if state.interrupted else exit_status(state.verdict)
