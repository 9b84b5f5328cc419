# SPDX-License-Identifier: MIT
"""``busbar sweep plan``: print which nodes measure together in each round."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.second_pass import SuspectPair, plan_suspects
from busbar.commands.cluster_options import add_topology
from busbar.commands.option_types import natural, positive
from busbar.document import read_document
from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.slurm.hostlist import MOST_NODES, expand
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stdout

_FEWEST = 2


def add_parser(actions: Any) -> None:
    """Add ``busbar sweep plan``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "plan",
        help="print which nodes measure together in each round, as JSON lines",
        description=(
            "Print one line of JSON for each pair: round, a, b. No node is twice in a round. With"
            " a topology, the first rounds pair nodes of one leaf switch or block, the others"
            " nodes of different ones. With --suspects, print the second pass. Exit status:"
            " 0 printed, 2 invalid input."
        ),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--nodes",
        metavar="NODES",
        help="number of nodes, or their names as Slurm writes them: gpu[001-128]",
    )
    what.add_argument(
        "--suspects",
        type=Path,
        metavar="FILE",
        help="plan the second pass instead: the output of `busbar sweep analyse --json`",
    )
    add_topology(parser, "default: all nodes on one switch")
    parser.add_argument("--rounds", type=positive, metavar="R", help="number of rounds")
    parser.add_argument(
        "--seed", type=natural, default=0, help="the same seed gives the same plan (default: 0)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.suspects:
        rows = plan_suspects(*_suspects(args.suspects))
    elif args.rounds is None:
        raise BusbarError(
            "--nodes needs --rounds",
            hint="add --rounds 8, which suffices for one fault in 10,000 nodes",
        )
    else:
        topology = read_topology(args.topology) if args.topology else SwitchTopology()
        rows = plan(_nodes(args.nodes, topology), topology, args.rounds, args.seed)
    stdout().text("".join(row.line() for row in rows))
    return 0


def _suspects(path: Path) -> tuple[list[SuspectPair], int]:
    """Return the suspects in the document of an analysis, and the first round of the next pass."""
    hint = "give the output of `busbar sweep analyse --json`"
    found: Analysis = read_document(path, hint, Analysis)
    # Links inside a node have no partner.
    return [pair for pair in found.suspects if pair.a != pair.b], found.last_round + 1


def _nodes(text: str, topology: SwitchTopology) -> list[str]:
    """Return the names in ``--nodes``; a number stands for the first ones of the topology."""
    count = numbers.whole(text)
    if count is None:
        nodes = expand(text, "--nodes")
    elif count < _FEWEST:
        nodes = []
    elif topology.leaf_of and count > len(topology.leaf_of):
        what = f"the topology has {len(topology.leaf_of)} nodes, got {count}"
        raise BusbarError(what, where="--nodes", hint="give a smaller number, or names")
    elif count > MOST_NODES:
        raise BusbarError(f"more than {MOST_NODES:,} nodes", where="--nodes", hint="give fewer")
    else:
        nodes = list(topology.leaf_of)[:count] or [f"n{number}" for number in range(count)]
    if len(nodes) < _FEWEST:
        what = f"a pair needs two nodes, got {text!r}"
        raise BusbarError(what, where="--nodes", hint="give 2 or more")
    return nodes
