# SPDX-License-Identifier: MIT
"""``busbar check`` after ReFrame has been started."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from busbar import site as sites
from busbar.boundary import refuse_foreign_to_root, refuse_unsafe, replace_file
from busbar.check import surroundings
from busbar.check.default_site import default_site
from busbar.check.document import missing_features
from busbar.check.listing import Match, lines
from busbar.check.names import short_name
from busbar.check.processes import Interrupted, Interruption
from busbar.check.reframe import ReFrame
from busbar.check.run import RunPlan, Step, job_count, load, run
from busbar.check.selection import refuse_nothing, refuse_unknown, selected, to_run
from busbar.check.target import Target, target_of, untested
from busbar.commands.check_end import RunState, conclude
from busbar.commands.declare import output_of, show, tell, wish_of
from busbar.data import CHECKS, history_directory
from busbar.delivery import reframe as reframe_configuration
from busbar.delivery.choice import Choice
from busbar.delivery.environment import Environment
from busbar.errors import BusbarError, file_error
from busbar.site import Site
from busbar.site.load import find
from busbar.slurm.client import cancel_jobs, waiting_shown
from busbar.terminal import stderr
from busbar.words import counted


def started(args: argparse.Namespace, reframe: ReFrame) -> int:
    """List the checks or run them; return the exit status."""
    if variables := surroundings.ignored_variables():
        tell(f"ignoring {', '.join(variables)}: only the options of busbar check count")
    if args.list:
        with TemporaryDirectory(prefix="busbar-list-") as directory:
            refuse_unsafe(directory, "TMPDIR")
            return _list(args, Path(directory), reframe)
    _choice(args)  # refuse names before anything is created
    refuse_foreign_to_root(history_directory(), "BUSBAR_HISTORY")
    surroundings.close_history_lock(history_directory())
    with output_of(args) as output, surroundings.own(output):
        surroundings.refuse_without_space(output)
        return _run(args, output, reframe)


def _choice(args: argparse.Namespace) -> Choice:
    if args.image and (args.prefix or args.delivery):
        what = "the checks use the stack in the image"
        raise BusbarError(what, where="--image", hint="omit --prefix and --delivery")
    return Choice(
        access=wish_of(args).access,
        lane=args.lane,
        prefix=args.prefix.absolute() if args.prefix else None,
        delivery=args.delivery,
        image=args.image,
        inject=tuple(args.inject),
    )


def _list(args: argparse.Namespace, output: Path, reframe: ReFrame) -> int:
    site_file, site = _site(args)
    target = _target(args, site)
    try:
        plan, environments = _plan(args, output, site_file, site, target)
    except BusbarError as error:
        if args.prefix or args.delivery or args.image:
            raise
        plan, environments = _plan(args, output, site_file, site, target, declared=True)
        tell(f"nothing can run on this machine, listing what site.yaml declares: {error.alone()}")
    matches = load(plan, reframe)
    _refuse_unknown(args, matches, environments)
    matches = selected(matches, args.name, args.tag)
    if not matches:
        refuse_nothing(args.checks, args.name, args.tag)
    show(args, matches, lines(matches))
    return 0


def _run(args: argparse.Namespace, output: Path, reframe: ReFrame) -> int:
    interruption: Interruption = args.interruption
    state = RunState(args.site or "", args.lane)
    with suppress(Interrupted), reframe:  # what was measured before is kept and judged
        _measure(args, output, state, reframe)
    with interruption.held():
        if interruption.name:
            interruption.finish()
            cancel_jobs(output)
        return conclude(args, output, state)


def _accepted(
    args: argparse.Namespace, output: Path, state: RunState, reframe: ReFrame
) -> tuple[RunPlan, list[Environment]]:
    """Load the checks; an error leaves the results of an earlier run in place."""
    site_file, site = _site(args)
    state.site, state.model = site.name, site
    state.target = _target(args, site)
    plan, environments = _plan(args, output, site_file, site, state.target)
    state.lane = plan.lane
    surroundings.refuse_without_shared_memory(plan.site)
    try:
        matches = load(plan, reframe)
    except BusbarError:
        return plan, environments  # the outcome of the run gives the reason
    _refuse_unknown(args, matches, environments)
    state.chosen = to_run(matches, args.name, _tags(args))
    lost = missing_features(plan, environments, args.require) or untested(state.target, plan.lane)
    if not lost and not job_count(state.chosen, plan.sweep):
        refuse_nothing(args.checks, args.name, _tags(args), state.chosen)
    return replace(plan, hashes=tuple(match.hash for match in state.chosen)), environments


def _measure(args: argparse.Namespace, output: Path, state: RunState, reframe: ReFrame) -> None:
    config = output / reframe_configuration.FILE
    earlier = config.read_bytes() if config.exists() else None
    try:
        plan, environments = _accepted(args, output, state, reframe)
    except BusbarError:
        if earlier is not None:
            replace_file(config, earlier)
        raise
    jobs = job_count(state.chosen, plan.sweep)
    ahead = f": {counted(jobs, 'job')}" if jobs else ""
    tell(f"site {state.site}, lane {state.lane}{_place(state.target)}{ahead}")
    names = {short_name(each.name).split()[0] for each in state.chosen}
    for each in plan.variables:
        check = each.partition("=")[0].rpartition(".")[0]
        if check and check not in names:
            tell(f"-S {each}: no check of this run is named {check}")
    waits = waiting_shown(output, tell) if state.target.nodes else nullcontext()
    remove_old_results(output)
    with args.interruption.held(), stderr().progress(jobs) as bar, waits:

        def progress(step: Step) -> None:
            if not step.ended:
                bar.show(step.check)
            elif step.counts:
                bar.advance()

        state.outcomes = run(plan, progress, reframe, args.interruption)
        state.outcomes += missing_features(plan, environments, args.require)


def _site(args: argparse.Namespace) -> tuple[Path, Site]:
    """Return the site's file and the site, detected if not given."""
    name = args.site or default_site(args.output, tell, args.gathered)
    return find(name), sites.load(name)


def _target(args: argparse.Namespace, site: Site) -> Target:
    every = args.nodelist == "all"
    return target_of(site, wish_of(args, "" if every else args.nodelist), every_node=every)


def _plan(
    args: argparse.Namespace,
    output: Path,
    site_file: Path,
    site: Site,
    target: Target,
    *,
    declared: bool = False,
) -> tuple[RunPlan, list[Environment]]:
    """Choose and probe the delivery, and write the ReFrame configuration."""
    choice = replace(
        _choice(args),
        declared=declared,
        allocation=len(target.nodes) if target.allocation else 0,
        sweep=target.sweep is not None,
    )
    config = reframe_configuration.load(site_file, choice)
    environments = [Environment.from_configuration(each) for each in config["environments"]]
    for each in config["systems"][0]["partitions"]:
        if not each["environs"]:
            tell(f"nothing runs on partition {each['name']}: {each['extras']['no_environment']}")
    plan = RunPlan(
        site=site,
        config=reframe_configuration.write(config, output),
        lane=choice.lane,
        output=output,
        checks=tuple(args.checks) or (CHECKS,),
        variables=tuple(args.setvar),
        retries=args.max_retries,
        sweep=target.sweep,
        options=(*target.options, *(["--keep-stage-files"] if args.keep_stage_files else [])),
    )
    return plan, environments


def _place(target: Target) -> str:
    if target.allocation:
        return f", inside job {target.allocation.job} on its {counted(len(target.nodes), 'node')}"
    tested = counted(len(target.nodes) - len(target.untested), "node")
    return f", {tested}" if target.sweep else ""


def _tags(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(args.tag) or (() if args.name or args.checks else ("gate",))


def _refuse_unknown(
    args: argparse.Namespace, matches: Sequence[Match], environments: Sequence[Environment]
) -> None:
    provided = [feature for each in environments for feature in each.features]
    refuse_unknown(
        matches, names=args.name, tags=args.tag, required=args.require, provided=provided
    )


def remove_old_results(output: Path) -> None:
    """Remove an earlier run's results: this run may end without a verdict."""
    for name in ("results.json", "report.html"):
        with file_error("cannot be removed", output / name, "choose another --output"):
            (output / name).unlink(missing_ok=True)
