# SPDX-License-Identifier: MIT
"""``busbar sweep simulate``: how well a sweep finds the faults of a fleet that does not exist."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from busbar.cluster.sweep.fleet import FaultKind, Noise
from busbar.cluster.sweep.simulate import Scenario, simulate
from busbar.commands.option_types import natural, positive, share
from busbar.documents import SimulationDocument
from busbar.errors import BusbarError
from busbar.slurm.hostlist import MOST_NODES
from busbar.terminal import stdout


def add_parser(actions: Any) -> None:
    """Add ``busbar sweep simulate``."""
    parser: argparse.ArgumentParser = actions.add_parser(
        "simulate",
        help="show how well a sweep finds faults, on a model of a fleet",
        description=(
            "Plan a sweep, measure it on a model of a fleet with random faults, analyse it,"
            " measure the suspects in a second pass, and analyse both. Exit status: 0 printed,"
            " 2 invalid input."
        ),
    )
    default = Scenario(nodes=2, bad=0)
    parser.add_argument(
        "--nodes", type=positive, required=True, metavar="N", help="number of nodes"
    )
    parser.add_argument("--bad", type=natural, required=True, metavar="K", help="number of faults")
    parser.add_argument(
        "--kind",
        choices=get_args(FaultKind),
        default=default.kind,
        help="what the faults are (default: %(default)s)",
    )
    parser.add_argument(
        "--noise",
        type=share,
        default=default.noise,
        metavar="P",
        help="size of the noise of each reading, relative to its rate (default: 0.03)",
    )
    parser.add_argument(
        "--tail",
        choices=get_args(Noise),
        default=default.tail,
        help="form of the noise; t3 is Student's t with 3 degrees of freedom (default: normal)",
    )
    parser.add_argument(
        "--slowdown",
        type=share,
        default=default.slowdown,
        metavar="SHARE",
        help="how much slower a fault is (default: 0.2)",
    )
    parser.add_argument(
        "--slow-leaf", action="store_true", help="make all nodes of one leaf slow as well"
    )
    parser.add_argument(
        "--leaf-size",
        type=positive,
        default=default.leaf_size,
        metavar="M",
        help="nodes of each leaf switch (default: %(default)s)",
    )
    parser.add_argument(
        "--nics",
        type=positive,
        default=default.nics,
        metavar="NICS",
        help="NICs of a node, for --kind nic (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=positive,
        default=default.rounds,
        metavar="R",
        help="rounds of the first pass (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=natural, default=0, help="the same seed gives the same fleet (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if not 1 < args.nodes <= MOST_NODES:
        hint = f"give 2 to {MOST_NODES:,}"
        raise BusbarError(f"cannot sweep {args.nodes} nodes", where="--nodes", hint=hint)
    scenario = Scenario(
        nodes=args.nodes,
        bad=args.bad,
        kind=args.kind,
        noise=args.noise,
        tail=args.tail,
        slowdown=args.slowdown,
        rounds=args.rounds,
        seed=args.seed,
        leaf_size=args.leaf_size,
        nics=args.nics,
        slow_leaf=args.slow_leaf,
    )
    found = simulate(scenario)
    document: SimulationDocument = {
        "schema": "busbar-sweep-simulation/1",
        "nodes": args.nodes,
        "rounds": args.rounds,
        "second_pass_rounds": found.second_pass_rounds,
        "bad": list(found.bad),
        "accused": list(found.accused),
        "recall": found.recall,
        "false_accusations": found.false_accusations,
        "plan_s": round(found.plan_s, 3),
        "analyse_s": round(found.analyse_s, 3),
    }
    if args.json:
        stdout().document(document)
        return 0
    missed = sorted(set(found.bad) - set(found.accused))
    stdout().line(
        f"{args.nodes} nodes, {len(found.bad)} faults: recall {found.recall:.4g},"
        f" {found.false_accusations} false accusations"
    )
    stdout().line(
        f"{args.rounds} rounds and {found.second_pass_rounds} of the second pass; CPU time"
        f" {found.plan_s:.2f} s to plan, {found.analyse_s:.2f} s to analyse"
    )
    for name in missed:
        stdout().line(f"missed: {name}")
    for name in sorted(set(found.accused) - set(found.bad)):
        stdout().line(f"falsely accused: {name}")
    return 0
