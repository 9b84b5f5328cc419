# SPDX-License-Identifier: MIT
"""``busbar node``: show node records and the next action for each node."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from busbar import site as sites
from busbar.boundary import replace_file
from busbar.check.surroundings import own
from busbar.cluster.nodes.looks import look_of
from busbar.cluster.nodes.record import NodeRecord, NodesDocument, load, update
from busbar.commands.declare import command, output_of, show, tell
from busbar.errors import BusbarError, file_error
from busbar.report.prometheus import node_metrics
from busbar.site.gate import NodeAction, NodePolicy


def add_parser(subparsers: Any) -> None:
    """Add ``busbar node``."""
    command(subparsers, node, ACTIONS=get_args(NodeAction))


def node(args: argparse.Namespace) -> int:
    """Show the state of nodes, and what to do next.

    A record combines the latest results of gate, sweep, checks and history for a node: its state
    and since when, the evidence, past actions, and the next action. busbar nightly keeps the
    records.

    Exit status: 0 no shown node needs an action, 1 a node does, 2 invalid input.

    Examples:

        busbar node n7 --output /shared/busbar
        busbar node --add gate.json --add sweep.json --site alpha --output /shared/busbar
        busbar node n7 --took reset --output /shared/busbar
    """
    with output_of(args) as directory:
        document = _changed(args, directory) if args.add or args.took else load(directory)
    known = {record.node: record for record in document.nodes}
    if unknown := [name for name in args.nodes if name not in known]:
        where = f"node {unknown[0]}"
        raise BusbarError("has no record", where=where, hint="run busbar nightly, or pass --add")
    shown = [known[name] for name in args.nodes] or [one for one in document.nodes if one.next]
    if args.prometheus:
        with file_error("cannot be written", args.prometheus, "choose another directory"):
            replace_file(args.prometheus, node_metrics(document.nodes), public=True)
    lines = [line for record in shown for line in _lines(record)]
    lines.append(f"{len(shown)} of {len(known)} nodes shown")
    show(args, NodesDocument(nodes=tuple(shown)), lines)
    return int(any(one.next for one in shown))


def _changed(args: argparse.Namespace, directory: Path) -> NodesDocument:
    """Add results and actions to the records, and run the site's commands."""
    if args.took and not args.nodes:
        raise BusbarError("needs a node", where="--took", hint="pass the node first")
    policy = sites.load(args.site).nodes if args.site else NodePolicy()
    with own(directory):
        looks = [look_of(path) for path in args.add]
        return update(directory, looks, policy, tell, dict.fromkeys(args.nodes, args.took))


def _lines(record: NodeRecord) -> Iterator[str]:
    yield f"{record.node}: {record.state} since {record.since}"
    yield f"  next: {record.next or 'nothing'}"
    if record.slurm:
        yield f"  Slurm: {record.slurm}"
    for one in record.evidence:
        doubt = "" if one.certain else ", not certain"
        yield f"  {one.source} at {one.time}{doubt}: {one.text}"
    yield from (f"  {done.action} at {done.time} by {done.by}" for done in record.taken)
