# SPDX-License-Identifier: MIT
"""``busbar sweep analyse``: name what is slow in the results of a sweep."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.cluster.sweep import limits
from busbar.cluster.sweep.analyse import TOLERANCE, Analysis, analyse
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.rows import read_results
from busbar.commands.cluster_options import add_limit, add_topology
from busbar.commands.option_types import share
from busbar.document import to_json
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stdout
from busbar.verdict import EXIT_UNJUDGED

EXIT_FOUND = 1


def add_parser(actions: Any) -> None:
    """Add ``busbar sweep analyse``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "analyse",
        help="name the slow node, NIC, link or uplink",
        description=(
            "Name what is slow in the results of a sweep: node, nic, link (one pair of nodes) or"
            " uplink (of a leaf switch). Exit status: 0 everything was measured and nothing is"
            " slow, 1 something is accused, suspected or not measured, 2 invalid input, 3 what"
            " was measured cannot be judged without a limit."
        ),
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="results of `busbar sweep run`")
    parser.add_argument("--site", help="name or directory of a site, whose bands judge the rates")
    add_topology(parser, "without it no uplink can be named")
    add_limit(parser)
    add_tolerance(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """Declare how exactly pairs must reach what they are compared with."""
    parser.add_argument(
        "--tolerance",
        type=share,
        default=TOLERANCE,
        metavar="SHARE",
        help="how far below --limit, or below the fleet, a pair may be (default: 0.1)",
    )


def _run(args: argparse.Namespace) -> int:
    results = read_results(args.file)
    topology = read_topology(args.topology) if args.topology else SwitchTopology()
    nics = list(dict.fromkeys(row.nic for row in results.between))
    notes: list[str] = []
    least: dict[str | None, Least] = {}
    site = sites.load(args.site) if args.site else None
    if args.limit:
        least = limits.of_limit(args.limit, args.tolerance, nics)
    elif site:
        least, notes = limits.of_site(site, nics)
    if site:
        least |= limits.inside_of_site(site, dict.fromkeys(row.nic for row in results.inside))
    found = analyse(results, topology, least, args.tolerance)
    found = replace(found, notes=(*notes, *found.notes))
    if args.json:
        stdout().document(to_json(found))
    else:
        _print(found)
    if found.accused or found.suspects or found.unmeasured:
        return EXIT_FOUND
    return 0 if found.decided else EXIT_UNJUDGED


def _print(found: Analysis) -> None:
    terminal = stdout()
    for one in found.accused:
        terminal.line((f"{one.kind} {one.id}", "bold red"), f": {one.evidence}")
    if not found.accused:
        terminal.line("nothing is accused")
    if found.suspects:
        terminal.line(f"{len(found.suspects)} pairs to measure again; --json lists them")
    for name in found.unmeasured:
        terminal.line(f"not measured: {name}")
    for note in found.notes:
        terminal.line(f"note: {note}")
