# SPDX-License-Identifier: MIT
"""Results of gate, sweep, checks and history for single nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from busbar.check.snapshot import of_document
from busbar.cluster.nodes.record import NodeEvidence, NodeLook
from busbar.cluster.sweep.accusation import nodes_of
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.document import SweepRun
from busbar.document import read_document
from busbar.engine.check_document import CheckDocument
from busbar.engine.results import Result
from busbar.errors import value_error
from busbar.gate.findings import GateDocument
from busbar.gate.site import GateAction
from busbar.history.model import Event, NightSeries, iso
from busbar.parse.tables import beside
from busbar.site.gate import NodeAction, NodeSource
from busbar.slurm.hostlist import hostnames
from busbar.units import seconds
from busbar.verdict import Verdict
from busbar.words import grouped

_ACTIONS: Mapping[GateAction, NodeAction] = beside(__file__)
_MOST_TEXT = 300
_RECENT_S = 14 * 86400
"""Changes of the history count for so long."""
_HINT = "pass the JSON output of busbar gate, sweep run or check, or results.json"
Found = Iterator[tuple[str, str, bool, NodeAction]]
"""Node, what was found, whether that is certain, and what repairs it."""


def _look(source: NodeSource, time: float, nodes: Iterable[str], found: Found) -> NodeLook:
    at = iso(time)
    evidence = grouped(
        (node, NodeEvidence(source, at, text[:_MOST_TEXT], certain, action))
        for node, text, certain, action in dict.fromkeys(found)
    )
    return NodeLook(source, at, frozenset(nodes), evidence)


def look_of(path: Path) -> NodeLook:
    """Read the look in a file; raise ``BusbarError`` if the file does not contain one."""
    document: Any = read_document(path, _HINT, GateDocument, SweepRun, Analysis, CheckDocument)
    with value_error("{}", path, _HINT):
        if isinstance(document, GateDocument):
            return _look("gate", seconds(document.time), [document.node], _gated(document))
        if isinstance(document, CheckDocument):
            return _of_checks(document)
    nodes = document.nodes if isinstance(document, SweepRun) else ()
    measured = {*nodes}.difference(document.unmeasured)
    return _look("sweep", path.stat().st_mtime, measured, _swept(document, {*nodes}))


def _gated(gated: GateDocument) -> Found:
    """Yield what the gate found on its node; what the site only observes is not certain."""
    for row in gated.checks:
        if row.is_fault and row.severity == "critical":
            what = " ".join(filter(None, (row.check, row.where, row.value)))
            text = f"{what} vs {row.band or 'healthy'}: {row.remedy}"
            yield gated.node, text, row.drains, _ACTIONS[row.action]
    for problem in gated.problems:
        yield gated.node, f"not complete: {problem}", False, "retest"


def _swept(sweep: SweepRun | Analysis, nodes: set[str]) -> Found:
    """Yield what a sweep found; what was slow again when it was confirmed is certain."""
    for one in sweep.accused:
        certain = len(one.nodes) == 1 and getattr(one, "confirmed", True)
        for node in one.nodes if one.kind != "uplink" else ():
            yield node, f"{one.kind} {one.id}: {one.evidence}", certain, "ticket"
    for pair in sweep.suspects:
        yield pair.a, "suspect: measure it again", False, "retest"
    if isinstance(sweep, SweepRun):
        yield from ((gone.node, gone.reason, True, "reboot") for gone in sweep.gone)
        for node in sweep.unsteady:
            yield node, "slow at times, possibly packet loss", False, "retest"
        for place in sweep.wrong_data:
            ends, what = nodes_of(place, nodes), f"wrong data: {place}"
            yield from ((end, what, len(ends) == 1, "ticket") for end in ends if end in nodes)


def _of_checks(document: CheckDocument) -> NodeLook:
    """Return what checks found. Do not blame a node for what most nodes fail."""
    rows = grouped(
        (outcome.check, (hostnames(row.where), row))
        for outcome in of_document(document).outcomes
        for row in outcome.results
        if row.where and row.verdict is not Verdict.NOT_RUN
    )
    nodes = (node for each in rows.values() for names, _ in each for node in names)
    found = chain.from_iterable(_checked(check, each) for check, each in rows.items())
    return _look("check", seconds(document.time), nodes, found)


def _checked(check: str, rows: Sequence[tuple[tuple[str, ...], Result]]) -> Found:
    bad = {names for names, row in rows if row.verdict.is_problem}
    good = {names for names, _ in rows} - bad
    if len(bad) > max(1, len(good)):
        return
    for names, row in rows:
        if row.verdict in (Verdict.DEGRADED, Verdict.FAILED):
            certain = len(names) == 1 and bool(good)
            yield from ((node, f"{check}: {row.message}", certain, "ticket") for node in names)


def of_history(events: Iterable[Event], series: Sequence[NightSeries], at: float) -> NodeLook:
    """Return the nodes that, unlike others, became slower within the last two weeks."""
    since = at - _RECENT_S
    nodes = (each.key.node.split(",") for each in series if each.times[-1] > since)
    return _look("history", at, chain.from_iterable(nodes), _slower(events, since))


def _slower(events: Iterable[Event], since: float) -> Found:
    for event in events:
        node = next((one.removeprefix("node ") for one in event.shared if one[:5] == "node "), "")
        if node and event.worse and event.since > since:
            text = f"slower since {iso(event.since)}: {event.changes[0].key.name}"
            yield node, text, False, "retest"
