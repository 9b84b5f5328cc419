# SPDX-License-Identifier: MIT
"""``busbar sweep``: plan, measure and analyse pairs of nodes."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.cluster.sweep import analyse as analysis
from busbar.cluster.sweep import limits
from busbar.cluster.sweep import plan as plans
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.rows import read_results
from busbar.cluster.sweep.second_pass import SuspectPair, plan_suspects
from busbar.commands import sweep_run
from busbar.commands.declare import command, group, show
from busbar.commands.sweep_run import NEXT_STEP, slow_text
from busbar.document import read_document
from busbar.errors import BusbarError
from busbar.slurm.hostlist import MOST_NODES, expand
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stdout
from busbar.verdict import EXIT_UNJUDGED, Verdict

EXIT_FOUND = 1
_FEWEST = 2


def add_parser(subparsers: Any) -> None:
    """Add ``busbar sweep`` and its actions, of which `run` does all that the others do."""
    text = "Measure all nodes in pairs at the same time, and name what is slow."
    actions = group(subparsers, "sweep", text)
    command(actions, sweep_run.run, TOLERANCE=analysis.TOLERANCE)
    command(actions, plan)
    command(actions, analyse, TOLERANCE=analysis.TOLERANCE)


def _topology(file: Path | None) -> SwitchTopology:
    return read_topology(file) if file else SwitchTopology()


def plan(args: argparse.Namespace) -> int:
    """Print which nodes measure together in each round, as JSON lines.

    One line for each pair: round, a, b. No node is twice in a round. With a topology, the first
    rounds pair nodes of one leaf switch or block, the others nodes of different ones. With
    --suspects, prints the second pass.

    Exit status: 0 printed, 2 invalid input.

    Examples:

        busbar sweep plan --nodes 128 --rounds 8
        busbar sweep plan --nodelist 'gpu[001-128]' --rounds 8 --topology /etc/slurm/topology.conf
    """
    if args.suspects:
        rows = plan_suspects(*_suspects(args.suspects))
    elif args.rounds is None:
        raise BusbarError(
            "a plan needs --rounds",
            hint="add --rounds 8, which suffices for one fault in 10,000 nodes",
        )
    else:
        switches = _topology(args.topology)
        rows = plans.plan(_nodes(args, switches), switches, args.rounds, args.seed)
    stdout().text("".join(row.line() for row in rows))
    return 0


def _suspects(path: Path) -> tuple[list[SuspectPair], int]:
    """Return the suspects in the document of an analysis, and the first round of the next pass."""
    hint = "give the output of `busbar sweep analyse --json`"
    found: analysis.Analysis = read_document(path, hint, analysis.Analysis)
    # Links inside a node have no partner.
    return [pair for pair in found.suspects if pair.a != pair.b], found.last_round + 1


def _nodes(args: argparse.Namespace, topology: SwitchTopology) -> list[str]:
    """Return the named nodes; a number stands for the first ones of the topology."""
    count, known = args.nodes, list(topology.leaf_of)
    if args.nodelist:
        nodes = expand(args.nodelist, "--nodelist")
    elif known and count > len(known):
        what = f"the topology has {len(known)} nodes, got {count}"
        raise BusbarError(what, where="--nodes", hint="give a smaller number")
    elif count > MOST_NODES:
        raise BusbarError(f"more than {MOST_NODES:,} nodes", where="--nodes", hint="give fewer")
    else:
        nodes = known[:count] or [f"n{number}" for number in range(count)]
    if len(nodes) < _FEWEST:
        raise BusbarError(f"a pair needs two nodes, got {len(nodes)}", hint="give 2 or more")
    return nodes


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
    found = analysis.analyse(results, _topology(args.topology), least, args.tolerance)
    found = replace(found, notes=(*notes, *found.notes))
    show(args, found, _print)
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
