# SPDX-License-Identifier: MIT
"""Nodes by state: of a run, or of a sweep by leaf switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from busbar.check.names import short_name
from busbar.cluster.sweep.accusation import Accusation
from busbar.engine.results import Outcome
from busbar.verdict import Verdict, combined
from busbar.words import grouped

_MOST_LISTED = 200
_MOST_NAMED = 256


@dataclass(frozen=True)
class FleetNode:
    """One node of the map."""

    name: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Leaf:
    """The nodes of one switch, or of a run."""

    name: str
    nodes: tuple[FleetNode, ...]
    summary: str


@dataclass(frozen=True)
class Fleet:
    """The map, and the table beside it: only what is not a pass."""

    leaves: tuple[Leaf, ...]
    counts: tuple[tuple[Verdict, int], ...]
    listed: tuple[FleetNode, ...]
    more: int
    """Nodes that are not a pass and have no place in the table."""
    total: int
    unmeasured: tuple[str, ...] = ()
    """Nodes, NICs and pairs of a sweep."""
    notes: tuple[str, ...] = ()
    """What limits the results of a sweep."""
    accused: tuple[Accusation, ...] = ()
    """What a sweep proves slow."""

    @property
    def named(self) -> bool:
        """Whether each node has room for its name."""
        return self.total <= _MOST_NAMED


@dataclass
class NodeState:
    """What is known of one node."""

    verdict: Verdict = Verdict.PASS
    reasons: list[str] = field(default_factory=list)


def of_outcomes(outcomes: Iterable[Outcome]) -> Fleet | None:
    """Return the map of the nodes of a run; None for fewer than two."""
    found = grouped(
        (name, (row.verdict, short_name(outcome.check)))
        for outcome in outcomes
        for row in outcome.results
        for name in filter(None, row.where.split(","))
    )
    states = {
        name: NodeState(
            combined(verdict for verdict, _ in rows),
            list(dict.fromkeys(check for verdict, check in rows if verdict.is_problem)),
        )
        for name, rows in found.items()
    }
    return fleet(states, {"": list(states)}) if len(states) > 1 else None


def fleet(states: Mapping[str, NodeState], leaves: Mapping[str, Sequence[str]]) -> Fleet:
    """Return the map of nodes, the leaf with the worst one first."""
    drawn = [_leaf(name, nodes, states) for name, nodes in leaves.items() if nodes]
    drawn.sort(key=lambda leaf: -max(node.verdict.severity for node in leaf.nodes))
    everyone = [node for leaf in drawn for node in leaf.nodes]
    bad = sorted(
        (node for node in everyone if node.verdict.is_problem),
        key=lambda node: -node.verdict.severity,
    )
    counts = Counter(node.verdict for node in everyone)
    return Fleet(
        leaves=tuple(drawn),
        counts=tuple(sorted(counts.items(), key=lambda each: -each[0].severity)),
        listed=tuple(bad[:_MOST_LISTED]),
        more=max(0, len(bad) - _MOST_LISTED),
        total=len(everyone),
    )


def _leaf(name: str, names: Sequence[str], states: Mapping[str, NodeState]) -> Leaf:
    nodes = []
    for each in names:
        state = states.get(each, NodeState(Verdict.NOT_RUN))
        nodes.append(FleetNode(each, state.verdict, "; ".join(state.reasons)))
    counts = Counter(node.verdict for node in nodes)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return Leaf(name, tuple(nodes), summary)
