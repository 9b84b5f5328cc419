# SPDX-License-Identifier: MIT
"""``busbar site``: list, show, lint, detect and add sites, and print their environment."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import yaml

from busbar import site as sites
from busbar.commands import calibrate
from busbar.data import SITES
from busbar.detect.compare import differences
from busbar.detect.machine import compose, detect, detect_cluster, match, recorded
from busbar.detect.write import facts, write, write_like
from busbar.document import to_json, written
from busbar.errors import BusbarError
from busbar.expect.lint import lint
from busbar.site.delivery import Stack
from busbar.site.load import find, search_path
from busbar.site.tuning import lanes, profiles, refuse_unknown
from busbar.terminal import Table, stderr, stdout
from busbar.words import grouped

EXIT_FINDINGS = 1
_COLUMNS = ("name", "GPUs", "fabric", "scheduler", "proof", "from")
_BROKEN = "broken: "


def add_parser(subparsers: Any) -> None:
    """Add ``busbar site`` and its actions."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "site", description="List, show, lint, detect and add sites, and print their environment."
    )
    commands = parser.add_subparsers(dest="site_command", required=True, metavar="ACTION")

    one = commands.add_parser(
        "list",
        help="list the sites",
        description=(
            "List the sites: hardware, scheduler, origin, and how far their bands are proven. Exit"
            " status: 0 all valid, 1 a site is broken, 2 invalid input."
        ),
    )
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_list)

    one = commands.add_parser(
        "show",
        help="print a site with the facts of its family",
        description=(
            "Print a site with the facts of its family as YAML. Exit status: 0 printed, 2 invalid"
            " input."
        ),
    )
    one.add_argument("name", metavar="SITE", help="name or directory of a site")
    one.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    one.set_defaults(run=_show)

    one = commands.add_parser(
        "lint",
        help="check sites against schema, rules and physical bounds",
        description=(
            "Check sites against the schema, the rules, and what their links can carry. Exit"
            " status: 0 no finding, 1 findings, 2 invalid input or nothing to do."
        ),
    )
    one.add_argument(
        "names", nargs="*", metavar="SITE", help="names or directories of sites (default: all)"
    )
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_lint)

    one = commands.add_parser(
        "detect",
        help="detect the site of this machine, or of its cluster",
        description=(
            "Print the site of this machine as YAML, from the output of its tools. On a host of a"
            " Slurm cluster it is the site of the cluster: an idle node of each kind runs a job of"
            " some seconds that describes it. Exit status: 0 printed or written, 1 a detected fact"
            " differs (--compare), 2 invalid input."
        ),
    )
    one.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="write DIR/site.yaml and DIR/reframe.py instead of printing",
    )
    one.add_argument(
        "--from",
        dest="files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="read tool outputs saved on another machine (nvidia-smi topo -m, lstopo --of xml...)",
    )
    one.add_argument("--compare", metavar="SITE", help="print the differences from this site")
    one.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    one.set_defaults(run=_detect)

    one = commands.add_parser(
        "new",
        help="write the first files of a site like another one",
        description=(
            "Write site.yaml, with comments, and reframe.py into a directory named NAME. Exit"
            " status: 0 written, 2 invalid input."
        ),
    )
    one.add_argument("name", metavar="NAME", help="name of the new site")
    one.add_argument("--like", required=True, metavar="SITE", help="a site with such hardware")
    one.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="directory of sites that gets NAME (default: the first of BUSBAR_SITE_PATH, else the"
        " current directory)",
    )
    one.set_defaults(run=_new)

    calibrate.add_parser(commands)

    one = commands.add_parser(
        "env",
        help="print the environment for the fabric, with reason and source",
        description=(
            "Print the variables that a site sets for jobs, with reason and source. Exit status:"
            " 0 printed, 2 invalid input."
        ),
    )
    one.add_argument("name", metavar="SITE", help="name or directory of a site")
    form = one.add_mutually_exclusive_group()
    form.add_argument("--shell", action="store_true", help="print export lines for a shell")
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--slurm", action="store_true", help="print lines for a Slurm TaskProlog")
    one.add_argument(
        "--stack",
        choices=get_args(Stack),
        help="stack (default: the site's first)",
    )
    one.add_argument(
        "--lane",
        help="UCX lane: ucx-1.14 or ucx-current (default: settings common to all lanes)",
    )
    one.add_argument(
        "--profile", help="tuning profile of the family; `busbar site env SITE` lists them"
    )
    one.add_argument(
        "--buffers",
        choices=["device", "host"],
        default="device",
        help="memory of the program's MPI buffers (default: %(default)s)",
    )
    one.add_argument(
        "--gpus", type=int, metavar="N", help="GPUs per node that the job uses (default: all)"
    )
    one.set_defaults(run=_env)


@dataclass(frozen=True)
class ListedSite:
    """One site of ``busbar site list``; ``from`` is ``busbar`` or the directory that has it."""

    name: str
    """Name of the site."""
    gpus: str = field(default="", metadata=written("GPUs"))
    """Count and model of a node's GPUs."""
    fabric: str = ""
    """Provider of the network between nodes."""
    scheduler: str = ""
    """``local``, ``slurm`` or ``squeue``."""
    proof: str = ""
    """``run``, ``replay`` or ``none``; empty for a broken site."""
    origin: str = field(default="", metadata=written("from"))
    description: str = ""
    """One line that describes it."""
    note: str = ""
    """What to do before its stack is installed, or why the site is broken."""


def _list(args: argparse.Namespace) -> int:
    rows = [_row(name) for name in sites.names()]
    if args.json:
        stdout().document(to_json(rows), indent=2)
    else:
        stdout().show(_listed(rows))
        for note, names in grouped((row.note, row.name) for row in rows if row.note).items():
            stdout().line(f"{', '.join(names)}: {note}")
    return EXIT_FINDINGS if any(row.note.startswith(_BROKEN) for row in rows) else 0


def _listed(rows: Sequence[ListedSite]) -> Table:
    """Return a table in which each site has one line of a terminal."""
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, overflow="fold", no_wrap=column != "from")
    for row in rows:
        gpus = row.gpus.replace("NVIDIA ", "").replace("AMD Instinct ", "")
        table.add_row(row.name, gpus, row.fabric, row.scheduler, row.proof, row.origin)
    return table


def _row(name: str) -> ListedSite:
    directory = find(name).parent.parent
    row = ListedSite(name, origin="busbar" if directory == SITES else str(directory))
    try:
        site = sites.load(name)
    except BusbarError as error:
        return replace(row, note=f"{_BROKEN}{error}")
    gpus = site.node_type().gpus
    stand_ins = [d.stack for d in site.all_deliveries if d.concretize_on_site]
    return replace(
        row,
        gpus=f"{gpus.count} x {gpus.model}" if gpus else "none",
        fabric=site.fabric.provider if site.fabric else "none",
        scheduler=site.scheduler,
        proof=site.proof,
        description=site.description,
        note=f"stack {', '.join(stand_ins)}: concretize again on site" if stand_ins else "",
    )


def _show(args: argparse.Namespace) -> int:
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
    names = args.names or sites.names()
    findings = [finding for name in names for finding in lint(name)]
    if args.json:
        stdout().document([vars(finding) for finding in findings], indent=2)
    else:
        for finding in findings:
            stdout().line(str(finding))
        stdout().line(
            f"{len(names)} site{'s' if len(names) != 1 else ''}, {len(findings)} findings"
        )
    return EXIT_FINDINGS if findings else 0


def _detect(args: argparse.Namespace) -> int:
    if args.files:
        detected = compose(recorded(args.files))
    else:
        detected = detect() if args.compare else detect_cluster()
    site = detected.site
    for remark in detected.remarks:
        stderr().line(f"busbar site detect: {remark}")
    if args.compare:
        compared = differences(detected, sites.load(args.compare))
        if args.json:
            stdout().document([vars(difference) for difference in compared], indent=2)
        else:
            for difference in compared:
                stdout().line(str(difference))
            plural = "s" if len(compared) != 1 else ""
            stdout().line(f"{len(compared)} difference{plural} from {args.compare}")
        return EXIT_FINDINGS if compared else 0
    if args.output:
        file = write(site, args.output)
        stdout().line(f"wrote {file} and reframe.py; next, run: busbar site lint {args.output}")
        return 0
    _print(facts(site), as_json=args.json)
    name = match(detected)
    if name and (site.scheduler == "local" or site.node_type().gpus):
        stderr().line(f"busbar site detect: this machine is of site {name}")
    return 0


def _new(args: argparse.Namespace) -> int:
    parent = args.output or next((path for path in search_path() if path != SITES), Path())
    file = write_like(sites.load(args.like), args.name, parent)
    stdout().line(
        f"wrote {file} and reframe.py; edit it, then run: busbar site lint {file.parent}"
    )
    return 0


def _env(args: argparse.Namespace) -> int:
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
    chosen = sites.variables(
        site,
        stack=args.stack,
        lane=args.lane,
        profile=args.profile,
        gpus=args.gpus,
        buffers=args.buffers,
    )
    if args.json:
        stdout().document({variable.name: variable.value for variable in chosen}, indent=2)
    elif args.slurm:
        # Slurm takes the rest of a TaskProlog's line as the value, so it must not be quoted.
        for variable in chosen:
            stdout().line(f"export {variable.name}={variable.value}")
    elif args.shell:
        for variable in chosen:
            stdout().line(f"# {variable.reason} ({variable.source})")
            stdout().line(f"export {variable.name}={shlex.quote(variable.value)}")
    else:
        table = Table(title=f"environment of {site.name}")
        for column in ("variable", "value", "reason", "source"):
            table.add_column(column, no_wrap=column == "variable", overflow="fold")
        for variable in chosen:
            table.add_row(variable.name, variable.value, variable.reason, variable.source)
        stdout().show(table)
        if modes:
            stdout().line(f"profiles (--profile): {', '.join(modes)}")
    return 0
