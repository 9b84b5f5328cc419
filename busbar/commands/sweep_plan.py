# SPDX-License-Identifier: MIT
"""``busbar sweep plan``: print which nodes measure together in each round."""

from __future__ import annotations

import argparse
from pathlib import Path

from busbar.cluster.sweep import plan as plans
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.second_pass import SuspectPair, plan_suspects
from busbar.document import read_document
from busbar.errors import BusbarError
from busbar.slurm.hostlist import MOST_NODES, expand
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stdout

_FEWEST = 2


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
        switches = read_topology(args.topology) if args.topology else SwitchTopology()
        rows = plans.plan(_nodes(args, switches), switches, args.rounds, args.seed)
    stdout().text("".join(row.line() for row in rows))
    return 0


def _suspects(path: Path) -> tuple[list[SuspectPair], int]:
    """Return the suspects in the document of an analysis, and the first round of the next pass."""
    hint = "give the output of `busbar sweep analyse --json`"
    found: Analysis = read_document(path, hint, Analysis)
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
