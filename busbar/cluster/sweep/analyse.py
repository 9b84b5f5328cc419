# SPDX-License-Identifier: MIT
"""Name the slow node, NIC, link or uplink from the rows of a sweep only.

Each NIC is judged on its own, and all NICs at once. Then the findings are put together:

- ``node``: all NICs of the node are slow, or only the readings of all NICs at once show it;
- ``nic``: some NICs of the node are slow;
- ``link``: a pair is slow each time, and both of its nodes are well;
- ``uplink``: the pairs that cross the uplinks of a leaf are slow, and those inside it are not; or
  all nodes of the leaf are slow, which is one fault and not many.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

import numpy as np

from busbar.cluster.sweep.accusation import Accusation, accused_twice
from busbar.cluster.sweep.judge_pairs import Judge, JudgedPairs, Least
from busbar.cluster.sweep.localise import Ints
from busbar.cluster.sweep.loss import lossy, with_loss
from busbar.cluster.sweep.paths import MINORITY
from busbar.cluster.sweep.readings import Readings, readings, unmeasured
from busbar.cluster.sweep.rows import MeasuredPair, PairState, Results
from busbar.cluster.sweep.second_pass import REPEATS, SuspectPair, pairs_of_suspects
from busbar.document import Contradictions, Sealed
from busbar.parse import numbers
from busbar.slurm.hostlist import fold
from busbar.slurm.topology import SwitchTopology
from busbar.units import outside
from busbar.words import grouped

# The constants: value, meaning, and how to see what another value costs.
#   fleets  python -m tests.bench.sweep_fleet: recall and false accusations of docs/sweep-method.md
#   method  part of the method, with the reason above
TOLERANCE = 0.1  # method: how far below the limit, or the fleet, a healthy pair may be
_SHOWN = 5  # method: pairs that notes name
_SMALLEST_LEAF = 3  # method: nodes of a leaf that can be slow as a whole
_MOST_OF_LEAF = 0.75  # fleets: accused nodes of such a leaf; the others are suspects
_ONE_WAY = 0.4  # lab: share of the loss (logarithm) that must be between both directions
_FEWEST_SUSPECT_LINKS = 50  # fleets: links to measure again, the slowest first
_MOST_SUSPECT_LINKS = 0.1  # fleets: the same by node


@dataclass(frozen=True, kw_only=True)
class Analysis(Sealed):
    """What the readings of a sweep show."""

    schema: Literal["busbar-sweep/1"] = "busbar-sweep/1"
    """The schema of this document."""
    accused: tuple[Accusation, ...]
    """What is slow."""
    suspects: tuple[SuspectPair, ...]
    """Pairs to measure again, once for each time that they are listed."""
    unmeasured: tuple[str, ...]
    """Nodes, ``NODE/NIC``, ``NODE/LINK`` and pairs ``NODE-NODE`` or ``NODE-NODE/NIC`` that could
    not be measured."""
    notes: tuple[str, ...] = ()
    """What limits these results: lines that were cut off, several kinds of nodes, no band."""
    last_round: int = 0
    """The highest round in the file; the second pass counts on from it."""
    decided: bool = True
    """Whether nothing was left open that only a limit can decide."""

    def contradictions(self) -> Contradictions:
        """Yield each key that contradicts others, or has an impossible value."""
        yield from accused_twice(self.accused)
        yield from outside(self, {"last_round": numbers.MOST})


def analyse(
    results: Results,
    topology: SwitchTopology,
    least: Mapping[str | None, Least],
    tolerance: float = TOLERANCE,
    planned: int | None = None,
) -> Analysis:
    """Judge the rows of a sweep. ``planned`` is the last round of its plan, if that is known.

    ``least`` has what a pair must reach by NIC, and for None with all NICs at once; NICs without
    an entry are judged by the fleet only.
    """
    measured = readings(results.rows)
    found = _Analyser(measured, topology, least, tolerance).analysis(results, planned)
    wrong = [
        (row.id, "wrong data" if row.state is PairState.WRONG else "more than the links carry")
        for row in results.rows
        if row.state is PairState.WRONG
        or (row.nic in least and (row.gb_per_s or 0.0) > least[row.nic].most)
    ]
    notes = [f"{what} between {pair}" for pair, what in wrong[:_SHOWN]]
    lost = dict.fromkeys([*found.unmeasured, *dict(wrong)])
    return replace(found, unmeasured=tuple(lost), notes=(*notes, *found.notes))


def _directed(
    accused: Iterable[Accusation], rows: Iterable[MeasuredPair], alike: float
) -> list[Accusation]:
    """Return the accusations with their direction: the ends of one reading are compared.

    A direction is named if most of the loss is in it alone.
    """
    rows = [row for row in rows if row.gb_per_s and row.arrived]
    rates = grouped((row.nic, row.gb_per_s or 0.0) for row in rows)
    usual = {nic: median(each) for nic, each in rates.items()}
    of = grouped((node, one) for one in accused for node in one.nodes)
    ratios: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    for row in rows:
        here, there = row.arrived or (0.0, 0.0)
        if not (0 < here < math.inf and 0 < there < math.inf):
            continue
        for node, other, ratio in ((row.a, row.b, here / there), (row.b, row.a, there / here)):
            for one in of.get(node, ()):
                if other not in one.nodes and (one.kind != "nic" or one.id == f"{node}/{row.nic}"):
                    ratios.setdefault(one.id, []).append(ratio)
                    losses.setdefault(one.id, []).append(usual[row.nic] / min(here, there))
    found = []
    for one in accused:
        ratio = median(ratios.get(one.id, [1.0]))
        way: Literal["", "sending", "receiving"] = "receiving" if ratio < 1 else "sending"
        loss = math.log(median(losses.get(one.id, [1.0])))
        way = way if abs(math.log(ratio)) > max(2 * alike, _ONE_WAY * loss) else ""
        text = f"only {way} is slow: {one.evidence}" if way else one.evidence
        found.append(replace(one, evidence=text, direction=way))
    return found


class _Analyser:
    def __init__(
        self,
        measured: Readings,
        topology: SwitchTopology,
        least: Mapping[str | None, Least],
        tolerance: float,
    ) -> None:
        self._readings = measured
        self._alike = -math.log1p(-tolerance) / 2
        self._names = measured.nodes
        self._leaf_names, self._leaf = self._numbered(topology.leaf_of)
        _, kind = self._numbered(topology.kind_of)
        large = np.bincount(kind + 1)[kind + 1] > MINORITY * len(kind)
        self._kind = np.where(large, kind, -1)
        ends = [np.union1d(pairs.a, pairs.b) for pairs in measured.measured.values()]
        judge = Judge(self._leaf, self._kind, tolerance, max(1, sum(map(len, ends))))
        self._judged = {
            nic: judge.judge(pairs, least.get(nic)) for nic, pairs in measured.measured.items()
        }

    def _numbered(self, groups: Mapping[str, str]) -> tuple[tuple[str, ...], Ints]:
        """Return the groups of nodes, and the number of its group for each node; -1 for none."""
        names = tuple(dict.fromkeys(groups[node] for node in self._names if node in groups))
        numbers = {name: number for number, name in enumerate(names)}
        of = [numbers.get(groups.get(node, ""), -1) for node in self._names]
        return names, np.array(of, np.int64)

    def analysis(self, results: Results, planned: int | None) -> Analysis:
        """Put the findings of all NICs together."""
        nodes, nics = self._nodes_and_nics()
        leaves = self._slow_leaves(nodes)
        doubtful = self._explained(nodes, leaves)
        nodes = {end: text for end, text in nodes.items() if end not in doubtful}
        accused = [*self._collapsed(nodes, leaves), *nics, *self._links(nodes), *self._uplinks()]
        accused = _directed(accused, results.rows, self._alike)
        loss = lossy(results.rows)
        accused = with_loss(accused, loss.accused)
        undecided = [
            f"{note} ({nic})" if nic else note
            for nic, judged in self._judged.items()
            for note in judged.open
        ]
        notes = [*undecided]
        if results.cut_lines:
            lines = ", ".join(map(str, results.cut_lines[:5]))
            notes.append(f"{len(results.cut_lines)} lines are truncated: line {lines}")
        if self._readings.repeated:
            notes.append(f"{self._readings.repeated} measurements are duplicates")
        if self._readings.failed:
            notes.append(f"{len(self._readings.failed)} measurements have no rate")
        lost = unmeasured(self._readings, planned)
        # What failed in the plan may be well; what was asked again is known.
        later = (row for row in results.rows if row.round > (planned or 0))
        asked = {node for row in later for node in (row.a, row.b)}
        again = {*loss.suspects, *({name.partition("/")[0] for name in lost} - asked)}
        return Analysis(
            accused=tuple(accused),
            suspects=tuple(self._suspects(set(nodes), doubtful, again)),
            unmeasured=tuple(lost),
            notes=tuple(notes),
            last_round=max(row.round for row in results.rows),
            decided=not undecided,
        )

    def _nodes_and_nics(self) -> tuple[dict[int, str], list[Accusation]]:
        """Return the evidence by node that is slow as a whole, and the slow NICs of others."""
        slow: dict[int, dict[str, str]] = {}
        suspected: set[int] = set()
        for nic, judged in self._judged.items():
            if nic is None:
                continue
            for end, evidence in judged.nodes.items():
                slow.setdefault(end, {})[nic] = evidence
            suspected |= judged.suspects
        has = self._nics_of_nodes()
        whole: dict[int, str] = {}
        nics: list[Accusation] = []
        for end, certain in sorted(slow.items()):
            node = self._names[end]
            others = sorted(has[end] - certain.keys())
            if all(self._as_slow(end, nic, certain) for nic in others):
                found = certain | dict.fromkeys(others, "equally slow, but not certain alone")
                each = "; ".join(f"{nic}: {text}" for nic, text in found.items())
                whole[end] = f"all its NICs are slow: {each}" if len(found) > 1 else each
                continue
            nics += [
                Accusation(f"{node}/{nic}", "nic", text, (node,)) for nic, text in certain.items()
            ]
        for end, evidence in self._judged.get(None, JudgedPairs()).nodes.items():
            if end not in slow and end not in suspected:
                whole[end] = f"all NICs at once: {evidence}" if has[end] else evidence
        return dict(sorted(whole.items())), nics

    def _as_slow(self, end: int, nic: str, slow: Iterable[str]) -> bool:
        """Return whether a NIC that is not accused is hardly faster than one that is."""
        mine = self._score(end, nic)
        return any(mine < self._score(end, one) + self._alike for one in slow)

    def _score(self, end: int, nic: str) -> float:
        """Return the score of a node's NIC; NaN if it has no score."""
        scores = self._judged.get(nic, JudgedPairs()).scores
        return float(scores[end]) if len(scores) else math.nan

    def _nics_of_nodes(self) -> list[set[str]]:
        """Return the NICs that have a row, with or without a rate, of each node."""
        has: list[set[str]] = [set() for _ in self._names]
        for nic, pairs in self._readings.measured.items():
            for end in np.union1d(pairs.a, pairs.b).tolist() if nic is not None else ():
                has[end].add(nic or "")
        numbers = {node: number for number, node in enumerate(self._names)}
        for row in self._readings.failed:
            for node in (row.a, row.b) if row.nic is not None and row.b else ():
                has[numbers[node]].add(row.nic or "")
        return has

    def _slow_leaves(self, nodes: Mapping[int, str]) -> list[int]:
        """Return the leaves without a node that is known to be good, if others have some."""
        suspects = {end for judged in self._judged.values() for end in judged.suspects}
        members = self._members()
        whole = [
            leaf
            for leaf, ends in members.items()
            if leaf >= 0
            and len(ends) >= _SMALLEST_LEAF
            and set(ends) <= nodes.keys() | suspects
            and len(nodes.keys() & set(ends)) >= _MOST_OF_LEAF * len(ends)
        ]
        return whole if len(whole) < len(members) else []  # else the fleet is slow as a whole

    def _explained(self, nodes: Iterable[int], leaves: Iterable[int]) -> set[int]:
        """Return the nodes accused only by readings with slow leaves: they met no good node."""
        common = set().union(*(judged.common for judged in self._judged.values()))
        slow = set(leaves)
        return {end for end in nodes if slow and end in common and self._leaf[end] not in slow}

    def _members(self) -> dict[int, list[int]]:
        """Return the measured nodes of each leaf."""
        return grouped((int(self._leaf[end]), end) for end in self._measured_nodes())

    def _collapsed(self, nodes: Mapping[int, str], leaves: list[int]) -> list[Accusation]:
        """Return the slow nodes, or their leaf instead if all nodes of the leaf are slow."""
        members = self._members()
        found = []
        for leaf in leaves:
            names = self._named(*members[leaf])
            first = next(end for end in members[leaf] if end in nodes)
            text = (
                f"all its {len(names)} nodes ({fold(names)}) are slow, also among themselves, as"
                f" {self._names[first]}: {nodes[first]}"
            )
            found.append(Accusation(self._leaf_names[leaf], "uplink", text, names))
        return found + [
            Accusation(self._names[end], "node", text, (self._names[end],))
            for end, text in nodes.items()
            if self._leaf[end] not in leaves
        ]

    def _measured_nodes(self) -> list[int]:
        """Return the nodes with a reading."""
        ends = [np.union1d(pairs.a, pairs.b) for pairs in self._readings.measured.values()]
        return np.unique(np.concatenate(ends)).tolist() if ends else []

    def _links(self, nodes: Mapping[int, str]) -> list[Accusation]:
        found: dict[tuple[int, int], str] = {}
        for nic, judged in self._judged.items():
            for link, text in judged.links.items():
                if not nodes.keys() & set(link):
                    found.setdefault(link, f"{nic}: {text}" if nic else text)
        return [
            Accusation(f"{self._names[a]}-{self._names[b]}", "link", text, self._named(a, b))
            for (a, b), text in sorted(found.items())
        ]

    def _uplinks(self) -> list[Accusation]:
        found: dict[tuple[int, ...], str] = {}
        for nic, judged in self._judged.items():
            for leaves, text in judged.uplinks.items():
                found.setdefault(leaves, f"{nic}: {text}" if nic else text)
        return [
            Accusation(
                "-".join(self._leaf_names[leaf] for leaf in leaves),
                "uplink",
                text,
                self._named(*np.flatnonzero(np.isin(self._leaf, leaves)).tolist()),
            )
            for leaves, text in sorted(found.items())
        ]

    def _named(self, *ends: int) -> tuple[str, ...]:
        return tuple(self._names[end] for end in ends)

    def _suspects(
        self, accused: set[int], doubtful: set[int], others: Collection[str]
    ) -> list[SuspectPair]:
        """Return what to measure again: suspects with good nodes, and links several times."""
        suspects = doubtful | {end for judged in self._judged.values() for end in judged.suspects}
        suspects |= {end for end in self._measured_nodes() if self._names[end] in others}
        bad = suspects | accused | {end for one in self._judged.values() for end in one.nodes}
        good = [end for end in self._measured_nodes() if end not in bad]
        met = [
            pair
            for pairs in self._readings.measured.values()
            for pair in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)
        ]
        near = np.where(self._leaf < 0, -1, self._leaf * (1 + len(self._names)) + self._kind + 1)
        chosen = pairs_of_suspects(sorted(suspects - accused), good, near.tolist(), met)
        links = self._suspect_links(bad) * REPEATS
        return [SuspectPair(self._names[a], self._names[b]) for a, b in [*chosen, *links]]

    def _suspect_links(self, bad: set[int]) -> list[tuple[int, int]]:
        """Return the slowest links of good nodes that are not decided.

        Pairs also collide on their way. If the slowest were well when they were measured again,
        the others were slow for that reason too.
        """
        again = set[tuple[int, int]]().union(*(judged.again for judged in self._judged.values()))
        found: dict[tuple[int, int], float] = {}
        for judged in self._judged.values():
            for link, rate in judged.suspect_links.items():
                if not bad & set(link) and link not in judged.links:
                    found[link] = min(rate, found.get(link, 0.0))
        most = max(_FEWEST_SUSPECT_LINKS, int(len(self._names) * _MOST_SUSPECT_LINKS))
        fresh = sorted(found.keys() - again, key=lambda link: found[link])
        return [*(found.keys() & again), *fresh[: max(0, most - len(again))]]
