# SPDX-License-Identifier: MIT
"""``busbar site``: list, show, check, detect and add sites, and print their environment."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from busbar import site as sites, spack
from busbar.boundary import refuse_links
from busbar.commands import calibrate
from busbar.commands.declare import command, group, show
from busbar.data import SITES
from busbar.detect.compare import differences
from busbar.detect.machine import compose, detect, detect_cluster, match, recorded
from busbar.detect.write import facts, write, write_like
from busbar.document import to_json, written
from busbar.errors import BusbarError
from busbar.expect.lint import lint
from busbar.parse.tables import refused
from busbar.plain import Column, Part
from busbar.site.delivery import DeliveryKind, Stack
from busbar.site.family import Variable
from busbar.site.load import find
from busbar.site.stacks import find_environment, provide, shared
from busbar.site.tuning import lanes, profiles, refuse_unknown
from busbar.terminal import stderr, stdout
from busbar.words import counted, grouped

EXIT_FINDINGS = 1
_NAMES = ("name", "GPUs", "fabric", "scheduler", "proof", "from")
_COLUMNS = [Column(name, rank=rank) for rank, name in enumerate(_NAMES)]
_BROKEN = "broken: "


def add_parser(subparsers: Any) -> None:
    """Add ``busbar site`` and its actions."""
    commands = group(
        subparsers, "site", "List, show, lint, detect and add sites, and print their environment."
    )
    command(commands, _list)
    command(commands, _show)
    command(commands, _lint)
    command(commands, _detect)
    command(commands, calibrate.run, name="calibrate")
    command(commands, _env, STACKS=get_args(Stack))
    command(commands, _spack)


@dataclass(frozen=True)
class ListedSite:
    """One site in ``busbar site list``; ``from`` is ``busbar`` or its parent directory."""

    name: str
    """Name of the site."""
    gpus: str = field(default="", metadata=written("GPUs"))
    """Number and model of the GPUs in a node."""
    fabric: str = ""
    """Network provider between nodes."""
    scheduler: str = ""
    """``local``, ``slurm`` or ``squeue``."""
    proof: str = ""
    """``run``, ``replay`` or ``none``; empty for a broken site."""
    origin: str = field(default="", metadata=written("from"))
    description: str = ""
    """One-line description."""
    note: str = ""
    """What to do before installing its stack, or why the site is broken."""


def _list(args: argparse.Namespace) -> int:
    """List the sites.

    Prints their hardware, scheduler, origin, and the proof of their bands.

    Exit status: 0 all valid, 1 a site is broken, 2 invalid input.

    Examples:

        busbar site list
        busbar site list --json
    """
    rows = [_row(name) for name in sites.names()]
    if args.json:
        stdout().document(to_json(rows), indent=2)
    else:
        stdout().fitted(_COLUMNS, list(map(_cells, rows)))
        for note, names in grouped((row.note, row.name) for row in rows if row.note).items():
            stdout().line(f"{', '.join(names)}: {note}")
    return EXIT_FINDINGS if any(row.note.startswith(_BROKEN) for row in rows) else 0


def _cells(row: ListedSite) -> list[Part]:
    gpus = re.sub("NVIDIA |AMD Instinct | Server Edition", "", row.gpus)
    return [row.name, gpus, row.fabric, row.scheduler, row.proof, row.origin]


def _row(name: str) -> ListedSite:
    directory = find(name).parent.parent
    row = ListedSite(name, origin="busbar" if directory == SITES else str(directory))
    try:
        site = sites.load(name)
    except BusbarError as error:
        return replace(row, note=f"{_BROKEN}{error}")
    gpus = site.node_type().gpus
    return replace(
        row,
        gpus=f"{gpus.count} x {gpus.model}" if gpus else "none",
        fabric=site.fabric.provider if site.fabric else "none",
        scheduler=site.scheduler,
        proof=site.proof,
        description=site.description,
    )


def _show(args: argparse.Namespace) -> int:
    """Print a site with the facts of its family as YAML.

    Exit status: 0 printed, 2 invalid input.

    Examples:

        busbar site show h200x4
        busbar site show sites/alpha --json
    """
    site = sites.load(args.name)
    family = sites.family(site)
    document = facts(site)
    extra = {
        "operator_steps": [step.model_dump() for step in family.operator_steps],
        "launch_rules": [rule.model_dump() for rule in family.launch_rules],
    }
    document |= {key: value for key, value in extra.items() if value}
    _print(document, as_json=args.json)
    return 0


def _print(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        stdout().document(document, indent=2)
    else:
        stdout().text(yaml.safe_dump(document, sort_keys=False, width=99))


def _lint(args: argparse.Namespace) -> int:
    """Check sites against schema, rules and physical bounds.

    Exit status: 0 no finding, 1 findings, 2 invalid input or nothing to do.

    Examples:

        busbar site lint
        busbar site lint sites/alpha
    """
    names = args.names or sites.names()
    findings = [finding for name in names for finding in lint(name)]
    total = f"{counted(len(names), 'site')}, {counted(len(findings), 'finding')}"
    show(args, findings, [*map(str, findings), total], indent=2)
    return EXIT_FINDINGS if findings else 0


def _detect(args: argparse.Namespace) -> int:
    """Detect the site of this machine, or of its cluster.

    Prints the site of this machine as YAML, from the output of its tools. On a host of a Slurm
    cluster, detects the whole cluster: a short job describes an idle node of each kind. With
    --like, writes the files of a new site modelled on an existing one.

    Exit status: 0 printed or written, 1 a detected fact differs (--compare), 2 invalid input.

    Examples:

        busbar site detect --output sites/alpha
        busbar site detect --like p5 --output sites/alpha
        busbar site detect --compare sites/alpha
    """
    if args.like:
        return _write_like(args)
    if args.files:
        detected = compose(recorded(args.files))
    else:
        detected = detect() if args.compare else detect_cluster()
    site = detected.site
    for remark in detected.remarks:
        stderr().line(f"busbar site detect: {remark}")
    if args.compare:
        compared = differences(detected, sites.load(args.compare))
        total = f"{counted(len(compared), 'difference')} from {args.compare}"
        show(args, compared, [*map(str, compared), total], indent=2)
        return EXIT_FINDINGS if compared else 0
    if args.output:
        file = write(site, args.output)
        stdout().line(f"wrote {file} and reframe.py; next, run: {_next_steps(args.output)}")
        if any(each.startswith("scontrol failed") for each in detected.remarks):
            stdout().line(
                "Slurm does not answer, so it describes only this host; for the cluster, remove"
                f" {args.output} and run this on a host where scontrol works"
            )
        return 0
    _print(facts(site), as_json=args.json)
    name = match(detected)
    if name and (site.scheduler == "local" or site.node_type().gpus):
        stderr().line(f"busbar site detect: this machine belongs to site {name}")
    return 0


def _write_like(args: argparse.Namespace) -> int:
    if not args.output or args.files:
        raise refused(__file__, "no-output")
    refuse_links(args.output, "--output")  # resolve() hides them
    directory = args.output.resolve()
    file = write_like(sites.load(args.like), directory.name, directory.parent)
    steps = _next_steps(args.output)
    stdout().line(f"wrote {file} and reframe.py; edit it, then run: {steps}")
    return 0


def _next_steps(directory: Path) -> str:
    path = directory.resolve()
    named = f"export BUSBAR_SITE_PATH={path.parent} lets --site {path.name} find it"
    return f"busbar site lint {directory}; {named}"


_MODULES_HEAD = """\
# SPDX-License-Identifier: MIT
# Written by `busbar site env {site} --modules`: what jobs of this site set for their fabric.
"""


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
        raise refused(__file__, "not-so-many", "--gpus", most=most, gpus=args.gpus, site=site.name)
    stack, lane = args.stack, args.lane
    if args.modules:
        _, delivery, lane = find_environment(site, lane)
        stack = stack or delivery.stack
    chosen = sites.variables(
        site, stack=stack, lane=lane, profile=args.profile, gpus=args.gpus, buffers=args.buffers
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

    Prefers the environment for the operating system of this machine, then for the site's, then for
    Debian 12. Standard error explains how to create a missing lock.

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
