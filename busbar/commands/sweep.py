# SPDX-License-Identifier: MIT
"""``busbar sweep``: measure and analyse pairs of nodes."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from busbar import site as sites
from busbar.cluster.sweep import analyse as analysis, limits
from busbar.cluster.sweep.accusation import accused_text
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.rows import read_results
from busbar.commands.declare import command, group, show
from busbar.commands.sweep_run import NEXT_STEP, run
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stdout
from busbar.verdict import EXIT_UNJUDGED, Verdict

EXIT_FOUND = 1


def add_parser(subparsers: Any) -> None:
    """Add ``busbar sweep`` and its actions; ``run`` includes ``analyse``."""
    text = "Measure all nodes at once, in pairs, and find what is slow."
    actions = group(subparsers, "sweep", text)
    command(actions, run, TOLERANCE=analysis.TOLERANCE)
    command(actions, analyse, TOLERANCE=analysis.TOLERANCE)


def analyse(args: argparse.Namespace) -> int:
    """Name the slow node, NIC, link or uplink.

    Names what is slow in the results of a sweep: a node, a NIC, a link (one pair of nodes) or an
    uplink (of a leaf switch).

    Exit status: 0 everything was measured and nothing is slow, 1 something is slow, suspected or
    not measured, 2 invalid input, 3 the results cannot be judged without a limit.

    Examples:

        busbar sweep analyse busbar-sweep/results.jsonl --site alpha
        busbar sweep analyse results.jsonl --limit 180 --topology topology.conf --json
    """
    results = read_results(args.file)
    nics = list(dict.fromkeys(row.nic for row in results.rows))
    notes: list[str] = []
    least: dict[str | None, Least] = {}
    site = sites.load(args.site) if args.site else None
    if args.limit:
        least = limits.of_limit(args.limit, args.tolerance, nics)
    elif site:
        least, notes = limits.of_site(site, nics)
    topology = read_topology(args.topology) if args.topology else SwitchTopology()
    found = analysis.analyse(results, topology, least, args.tolerance)
    found = replace(found, notes=(*notes, *found.notes))
    show(args, found, _print)
    if found.accused or found.suspects or found.unmeasured:
        return EXIT_FOUND
    return 0 if found.decided else EXIT_UNJUDGED


def _print(found: analysis.Analysis) -> None:
    terminal = stdout()
    if found.accused:
        terminal.headline(
            Verdict.DEGRADED, accused_text(found.accused), NEXT_STEP.format(found.accused[0].node)
        )
    for one in found.accused:
        terminal.line((f"{one.kind} {one.id}", "bold red"), f": {one.evidence}")
    if not found.accused:
        terminal.line("nothing is accused")
    if found.suspects:
        terminal.line(f"{len(found.suspects)} pairs should be measured again; --json lists them")
    for name in found.unmeasured:
        terminal.line(f"not measured: {name}")
    for note in found.notes:
        terminal.line(f"note: {note}")
