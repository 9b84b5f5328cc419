# SPDX-License-Identifier: MIT
"""``busbar site env`` and ``busbar site spack``: what jobs and Spack need of a site."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, get_args

import yaml

from busbar import site as sites
from busbar import spack
from busbar.commands.declare import command, show
from busbar.data import SITES
from busbar.errors import BusbarError
from busbar.site.delivery import DeliveryKind, Stack
from busbar.site.family import Variable
from busbar.site.stacks import find_environment, provide, shared
from busbar.site.tuning import lanes, profiles, refuse_unknown
from busbar.terminal import stderr, stdout

_MODULES_HEAD = """\
# SPDX-License-Identifier: MIT
# Written by `busbar site env {site} --modules`: what jobs of this site set for their fabric.
"""


def add_parsers(commands: Any) -> None:
    """Add the two commands."""
    command(commands, _env, STACKS=get_args(Stack))
    command(commands, _spack)


def _env(args: argparse.Namespace) -> int:
    """Print the environment for the fabric, with reason and source.

    Prints the variables that a site sets for jobs.

    Exit status: 0 printed, 2 invalid input.

    Examples:

        busbar site env p5
        busbar site env p5 --shell --buffers host
        busbar site env p5 --modules
    """
    site = sites.load(args.name)
    modes = profiles(site)
    refuse_unknown(site, "profile", args.profile, modes)
    refuse_unknown(site, "lane", args.lane, lanes(site))
    refuse_unknown(site, "stack", args.stack, sorted({d.stack for d in site.all_deliveries}))
    most = max((n.gpus.count for n in site.node_types.values() if n.gpus), default=0)
    if args.gpus is not None and not 1 <= args.gpus <= most:
        raise BusbarError(
            f"must be 1 to {most}, got {args.gpus}",
            where="--gpus",
            hint=f"a node of {site.name} has {most} GPUs",
        )
    stack, lane = args.stack, args.lane
    if args.modules:
        _, delivery, lane = find_environment(site, lane)
        stack = stack or delivery.stack
    chosen = sites.variables(
        site,
        stack=stack,
        lane=lane,
        profile=args.profile,
        gpus=args.gpus,
        buffers=args.buffers,
    )
    values = {each.name: each.value for each in chosen}
    if args.modules:
        stdout().text(_modules(site.name, values))
    elif args.slurm:
        # Slurm takes the rest of a TaskProlog's line as the value, so it must not be quoted.
        for name, value in values.items():
            stdout().line(f"export {name}={value}")
    elif args.shell:
        for each in chosen:
            stdout().line(f"# {each.reason} ({each.source})")
            stdout().line(f"export {each.name}={shlex.quote(each.value)}")
    else:
        show(args, values, lambda _: _print_table(site.name, chosen, modes), indent=2)
    return 0


def _print_table(site: str, chosen: Sequence[Variable], modes: Sequence[str]) -> None:
    stdout().line(f"environment of {site}", style="bold")
    for variable in chosen:
        stdout().line(f"{variable.name}={variable.value}")
        stdout().line(f"  {variable.reason} ({variable.source})", style="dim")
    if modes:
        stdout().line(f"profiles (--profile): {', '.join(modes)}")


def _modules(site: str, variables: dict[str, str]) -> str:
    every = {"all": {"environment": {"set": dict(sorted(variables.items()))}}}
    # Twice the same object is an alias in YAML.
    scope = {"modules": {"default": {"lmod": every, "tcl": deepcopy(every)}} if variables else {}}
    return _MODULES_HEAD.format(site=site) + yaml.safe_dump(scope, sort_keys=False)


def _spack(args: argparse.Namespace) -> int:
    """Print the directory of a site's environment, for spack -e.

    Prefer the environment for the operating system of this machine, then the one for the system
    of the site, then the one for Debian 12. Standard error says how to make a missing lock.

    Exit status: 0 printed, 2 the site has no such environment, or this machine cannot install its
    lock.

    Examples:

        busbar site spack local
        busbar site spack p5 --lane ucx-current
    """
    site = sites.load(args.name)
    kind: DeliveryKind = "image" if args.image else "spack"
    directory, _, _ = find_environment(site, args.lane, kind, args.system)
    provide(directory)
    if args.installable:
        spack.require_installable(spack.load(directory / spack.FILE), args.name)
    if args.create:
        directory = spack.own_environment(site, directory)
    root = SITES.parent
    path = str(directory.relative_to(root) if root in directory.parents else directory)
    if not args.create and not (directory / spack.FILE).is_file():
        if own := shared(directory):
            what = f"no lock for {own.system} is committed; make spack derives it, or make "
            what += f"spack-lock ENVS={path.rpartition('_stacks/')[2]}"
        else:
            what = f"no lock found; run make spack-concretize SITE={args.name}"
        stderr().line(f"busbar site spack: {what}")
    stdout().line(path)
    return 0
