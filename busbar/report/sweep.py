# SPDX-License-Identifier: MIT
"""Read the verdict of a sweep, and draw its nodes by leaf switch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from busbar.cluster.sweep.accusation import nodes_of
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.cluster.sweep.rows import read_results
from busbar.report.fleet import Fleet, NodeState, fleet
from busbar.report.scale import number
from busbar.slurm.hostlist import natural
from busbar.verdict import Verdict, worst
from busbar.words import grouped

_LOWER = 0.95
"""Medians below this share of the usual one are shown beside it."""


def at_best(sweep: Analysis | SweepRun) -> Verdict:
    """Return the verdict of a node without evidence against it."""
    if isinstance(sweep, Analysis):
        return Verdict.PASS if sweep.decided else Verdict.UNJUDGED
    return Verdict.UNJUDGED if sweep.verdict is Verdict.UNJUDGED else Verdict.PASS


def read_rates(path: Path) -> dict[str, list[float]]:
    """Return the readings of each node in the rows of a sweep."""
    rates: dict[str, list[float]] = {}
    for row in read_results(path).rows:
        for node in filter(None, (row.a, row.b)):
            rates.setdefault(node, []).extend([row.gb_per_s] if row.gb_per_s else [])
    return rates


def map_of(
    sweep: Analysis | SweepRun, rates: Mapping[str, Sequence[float]], leaf_of: Mapping[str, str]
) -> Fleet:
    """Return the nodes by leaf: a node passes if it has readings and no evidence against it."""
    planned = sweep.nodes if isinstance(sweep, SweepRun) else ()
    nodes = dict.fromkeys([*planned, *rates])
    states = {node: NodeState(at_best(sweep), [""]) for node in nodes}
    medians = {node: statistics.median(values) for node, values in rates.items() if values}
    usual = statistics.median(medians.values()) if medians else 0.0
    for node in rates:
        if node in medians:
            of = f" of {number(usual)}" if medians[node] < _LOWER * usual else ""
            states[node].reasons = [f"median {number(medians[node])}{of} GB/s"]
        else:
            states[node] = NodeState(Verdict.NOT_RUN, ["no reading"])
    for verdict, names, reason in _findings(sweep, set(nodes)):
        for node in names:
            state = states.setdefault(node, NodeState())
            if verdict.severity > state.verdict.severity:
                state.reasons = [each for each in state.reasons if each.startswith("median")]
            state.verdict = worst([state.verdict, verdict])
            state.reasons.append(reason)
    elsewhere = "not in the topology" if leaf_of else ""
    ordered = sorted(states, key=natural)
    leaves = grouped((leaf_of.get(node, elsewhere), node) for node in ordered)
    stopped = [sweep.stopped] if isinstance(sweep, SweepRun) and sweep.stopped else []
    notes = (*stopped, *sweep.notes)
    drawn = fleet(states, leaves)
    return replace(drawn, unmeasured=sweep.unmeasured, notes=notes, accused=sweep.accused)


def _findings(
    sweep: Analysis | SweepRun, known: set[str]
) -> Iterator[tuple[Verdict, Iterable[str], str]]:
    for each in sweep.accused:
        names = each.nodes or nodes_of(each.id, known)
        yield Verdict.DEGRADED, names, f"{each.kind} {each.id}: {each.evidence}"
    if isinstance(sweep, SweepRun):
        for pair in sweep.wrong_data:
            yield Verdict.FAILED, nodes_of(pair, known), f"wrong data: {pair}"
        yield from ((Verdict.NOT_RUN, (gone.node,), gone.reason) for gone in sweep.gone)
    for name in sweep.unmeasured:
        # One pair that failed leaves both nodes measured by their other pairs.
        if nodes_of(name, known) == (name,):
            yield Verdict.NOT_RUN, (name,), "not measured"
    for suspect in sweep.suspects:
        yield Verdict.UNKNOWN, (suspect.a,), "suspect: measure it again with a good node"
