# SPDX-License-Identifier: MIT
"""``busbar sweep run``: measure the pairs of a plan on the nodes of a Slurm job."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from busbar import site as sites
from busbar.boundary import replace_file
from busbar.check.default_site import default_site
from busbar.check.processes import Interrupted, Interruption
from busbar.check.surroundings import own, refuse_without_space
from busbar.cluster.measure.program import prepare
from busbar.cluster.measure.run import SweepOutcome, SweepRequest, SweepRunner
from busbar.cluster.measure.store import PLAN, RESULTS
from busbar.cluster.sweep.accusation import WORDS, accused_text
from busbar.cluster.sweep.document import GoneNode, RunAccusation, SweepRun
from busbar.cluster.sweep.rows import PairState
from busbar.commands.declare import choice_of, output_of, show, tell, wish_of
from busbar.data import busbar
from busbar.parse.tables import refused
from busbar.slurm.client import Slurm, cancel
from busbar.slurm.hostlist import fold
from busbar.slurm.options import Grant, Wish, granted, run_in_job
from busbar.slurm.topology import SwitchTopology, kinds_in, read_topology
from busbar.terminal import stdout
from busbar.verdict import Verdict, exit_status
from busbar.words import counted, names_text

_MOST_ROUNDS = 8
_FEWEST = 2
_STARTED = "job"
"""File with the job ID; it exists once the job has started."""
_TOPOLOGY = "topology.conf"
_END_S = 45
"""Time after a signal in which the job must end its step and print its verdict."""
_BESIDES_S = 600
"""Time in which the job compiles its program, launches, and analyses, on a slow file system."""
_SHOWN = 10
NEXT_STEP = "test a slow node alone: busbar check --site SITE --nodelist {}"


def run(args: argparse.Namespace) -> int:
    """Measure pairs of nodes, round after round, and name what is slow.

    Measures all nodes at once, in pairs, with one Slurm step for all rounds, then measures
    suspects and slow nodes again. Inside a job (salloc, sbatch), measures the nodes of the job;
    otherwise submits a job on all nodes of the partition. Writes results after each round;
    --resume continues an interrupted sweep. `busbar gate` measures the links inside each node.

    {EXIT_STATUSES} 128 + N after signal N.

    Examples:

        busbar sweep run --site alpha --partition gpu --max-pending 3h
        busbar sweep run --site alpha --nodelist 'n[3-8],n12'
    """
    with output_of(args) as output:
        return _sweep(args, output)


def _sweep(args: argparse.Namespace, output: Path) -> int:
    _refuse_earlier(output, resume=args.resume)
    name = args.site or default_site(output, tell)
    site = sites.load(name)
    if not args.in_job:  # refuse what is wrong before a job waits
        choice_of(args)
        if args.topology:
            read_topology(args.topology)
    wish = Wish(args.partition) if args.in_job else wish_of(args, args.nodelist)
    grant = granted(site, wish, one=True)
    for node in grant.unusable:
        tell(f"not measured: {node}")
    if len(grant.usable) < _FEWEST:
        where = "--nodelist" if args.nodelist else f"partition {grant.partition.name}"
        raise refused(__file__, "one-node", where, got=len(grant.usable))
    if not grant.held:
        return _submit(args, output, grant, wish, name)
    with own(output):
        refuse_without_space(output)
        replace_file(output / _STARTED, f"{os.environ['SLURM_JOB_ID']}\n")
        return _measure(args, output, site, grant)


def _refuse_earlier(output: Path, *, resume: bool) -> None:
    """Refuse to overwrite an earlier sweep, or to resume a missing one."""
    earlier = output / RESULTS
    if resume and not (output / PLAN).exists():
        raise refused(__file__, "no-sweep", output)
    if not resume and earlier.exists() and earlier.stat().st_size:
        raise refused(__file__, "earlier", output)


def _submit(args: argparse.Namespace, output: Path, grant: Grant, wish: Wish, site: str) -> int:
    """Run this command in a job; return its exit status."""
    tell(f"submitting a job on {len(grant.usable)} nodes")
    started = output / _STARTED
    started.unlink(missing_ok=True)
    args.interruption.grace = _END_S
    with args.interruption.held():
        command = again(args, site, output, grant)
        seconds = _seconds(args, _MOST_ROUNDS) + _BESIDES_S
        status = run_in_job(grant, wish, "busbar-sweep", command, seconds)
    if args.interruption.name:
        return int(args.interruption.status)
    if not started.exists():
        raise refused(__file__, "no-job", "salloc")
    if status < 0:  # a signal ended salloc, which leaves its job behind
        cancel(started.read_text().strip())
        return 128 - status
    return status


def _measure(args: argparse.Namespace, output: Path, site: sites.Site, grant: Grant) -> int:
    interruption: Interruption = args.interruption
    rounds = args.rounds or min(_MOST_ROUNDS, len(grant.usable) - 1)
    request = SweepRequest(
        site,
        _topology(args.topology, output),
        rounds,
        args.seed,
        _seconds(args, rounds),
        args.limit,
        args.tolerance,
        tuple(nic.name for nic in site.node_types[grant.partition.node_type].nics),
    )
    sweep = SweepRunner(request, grant.usable, output, tell)
    with suppress(Interrupted):  # what was measured before is kept and analysed
        sweep.prepare(resume=args.resume)
        sweep.watch(grant.usable)
        program = prepare(site, grant.partition, choice_of(args), args.seconds, output)
        sweep.measure(program, grant.usable)
    with interruption.held():
        outcome = sweep.conclude(interruption.name)
        if interruption.name:
            interruption.finish()
        return _conclude(args, output, outcome, interruption)


def _seconds(args: argparse.Namespace, rounds: int) -> int:
    return int(args.deadline or 600 + 60 * (args.rounds or rounds))


def _topology(file: Path | None, output: Path) -> SwitchTopology:
    """Return the topology from a file or from Slurm; a resumed sweep keeps its own."""
    if file:
        return read_topology(file)
    kept = output / _TOPOLOGY
    if not kept.exists():
        replace_file(kept, Slurm().topology() + kinds_in(Slurm().hardware()))
    return read_topology(kept) if kept.stat().st_size else SwitchTopology()


def _conclude(
    args: argparse.Namespace, output: Path, outcome: SweepOutcome, interruption: Interruption
) -> int:
    verdict = outcome.verdict
    if interruption.name and verdict in (Verdict.PASS, Verdict.UNJUDGED):
        verdict = Verdict.UNKNOWN
    done = document(outcome, verdict, output)
    show(args, done, partial(print_run, judged=outcome.judged))
    return interruption.status if interruption.name else exit_status(verdict)


def again(args: argparse.Namespace, site: str, output: Path, grant: Grant) -> list[str]:
    """Return this command for a job on the nodes; the last of repeated options counts."""
    changed = (f"--site={site}", f"--partition={grant.partition.name}", f"--output={output}")
    return busbar(*args.command_line, *changed, "--nodelist=", "--in-job")


def document(outcome: SweepOutcome, verdict: Verdict, output: Path) -> SweepRun:
    """Return the JSON document."""
    found = outcome.analysis
    times = outcome.times
    return SweepRun(
        verdict=verdict,
        nodes=tuple(outcome.nodes),
        median_gb_per_s=outcome.median,
        accused=tuple(
            RunAccusation(
                **vars(one), confirmed=one.id in outcome.confirmed or one.fault != "slow"
            )
            for one in (found.accused if found else ())
        ),
        suspects=found.suspects if found else (),
        unsteady=tuple(outcome.unsteady),
        wrong_data=tuple(row.id for row in outcome.wrong),
        unmeasured=tuple(unmeasured(outcome)),
        gone=tuple(GoneNode(node, why) for node, why in outcome.gone.items()),
        stopped=outcome.stopped,
        notes=found.notes if found else (),
        rounds=times.rounds,
        steps=times.steps,
        launch_s=round(times.launch, 3),
        measured_s=round(times.measured, 3),
        output=str(output),
    )


def unmeasured(outcome: SweepOutcome) -> list[str]:
    """Return what could not be measured: nodes, NICs and pairs."""
    if not outcome.analysis:
        return list(outcome.nodes)
    missing = dict.fromkeys([*outcome.gone, *outcome.absent, *outcome.analysis.unmeasured])
    measured = [row for row in outcome.rows if row.state is PairState.OK]
    seen = {node for row in measured for node in (row.a, row.b)}
    missing |= dict.fromkeys(node for node in outcome.nodes if node not in seen)
    pairs = (f"{row.a}-{row.b}" for row in outcome.left if not {row.a, row.b} & missing.keys())
    return list(missing | dict.fromkeys(pairs))


def print_run(run: SweepRun, *, judged: bool) -> None:
    """Print the verdict on one screen."""
    terminal = stdout()
    parts = [accused_text(run.accused)] if run.accused else []
    gone = [one.node for one in run.gone]
    parts += [f"{names_text(gone)} did not answer"] if gone else []
    parts += ["wrong data arrived"] if run.wrong_data else []
    parts += [counted(len(run.nodes), "node") + f" in {counted(run.rounds, 'round')}"]
    step = NEXT_STEP.format(run.accused[0].node) if run.accused else ""
    terminal.headline(run.verdict, "; ".join(parts), step)
    if run.median_gb_per_s:
        terminal.line(f"median of all pairs: {run.median_gb_per_s:.4g} GB/s")
    for one in run.accused[:_SHOWN]:
        how = "certain, confirmed" if one.confirmed else "certain"
        text = f" is {WORDS[one.fault]} ({how}): {one.evidence}"
        terminal.line((f"{one.kind} {one.id}", "bold"), text)
    for line in _lines(run):
        terminal.line(line)
    if not judged:
        terminal.line("only compared with each other: pass --limit, or calibrate the site")
    if run.stopped:
        terminal.line(f"ended early: {run.stopped}; --resume continues it")
    for note in run.notes:
        terminal.line(f"note: {note}")
    seconds = f"{run.launch_s:.1f} s of launch and {run.measured_s:.1f} s of measurement"
    terminal.line(f"{seconds}; results: {run.output}")


def _lines(run: SweepRun) -> Iterator[str]:
    """Yield other findings: slow, wrong data, no answer, not measured, undecided."""
    if rest := [one.id for one in run.accused[_SHOWN:]]:
        yield f"and {len(rest)} more: {', '.join(rest)}"
    if run.wrong_data:
        yield f"wrong data between {', '.join(sorted({*run.wrong_data})[:_SHOWN])}"
    yield from (f"node {one.node} {one.reason}" for one in run.gone)
    if run.unsteady:
        yield f"slow at times, but not at fault: {', '.join(run.unsteady)}"
    nodes = [name for name in run.unmeasured if name in run.nodes]
    others = [name for name in run.unmeasured if name not in run.nodes]
    if names := [*([fold(nodes)] if nodes else []), *others]:
        yield f"not measured: {names_text(names, _SHOWN)}"
    if run.suspects:
        yield f"undecided: {len(run.suspects)} pairs; --json lists them"
