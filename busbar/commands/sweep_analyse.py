# SPDX-License-Identifier: MIT
"""``busbar sweep analyse``: name what is slow in the results of a sweep."""

from __future__ import annotations

import argparse
from dataclasses import replace

from busbar import site as sites
from busbar.cluster.sweep import analyse as analysis
from busbar.cluster.sweep import limits
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.rows import read_results
from busbar.commands.sweep_report import NEXT_STEP, slow_text
from busbar.document import to_json
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stdout
from busbar.verdict import EXIT_UNJUDGED, Verdict

EXIT_FOUND = 1


def analyse(args: argparse.Namespace) -> int:
    """Name the slow node, NIC, link or uplink.

    Names what is slow in the results of a sweep: node, nic, link (one pair of nodes) or uplink (of
    a leaf switch).

    Exit status: 0 everything was measured and nothing is slow, 1 something is accused, suspected
    or not measured, 2 invalid input, 3 what was measured cannot be judged without a limit.

    Examples:

        busbar sweep analyse busbar-sweep/results.jsonl --site alpha
        busbar sweep analyse results.jsonl --limit 180 --topology topology.conf --json
    """
    results = read_results(args.file)
    switches = read_topology(args.topology) if args.topology else SwitchTopology()
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
    found = analysis.analyse(results, switches, least, args.tolerance)
    found = replace(found, notes=(*notes, *found.notes))
    if args.json:
        stdout().document(to_json(found))
    else:
        _print(found)
    if found.accused or found.suspects or found.unmeasured:
        return EXIT_FOUND
    return 0 if found.decided else EXIT_UNJUDGED


def _print(found: analysis.Analysis) -> None:
    terminal = stdout()
    if found.accused:
        terminal.headline(Verdict.DEGRADED, slow_text(found.accused), NEXT_STEP)
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
