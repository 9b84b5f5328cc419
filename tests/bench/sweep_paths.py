# SPDX-License-Identifier: MIT
"""Measure sweeps of fleets whose uplinks are shared: ``python -m tests.bench.sweep_paths``.

The flows of a round share their leaves' uplinks by max-min fairness, each direction on its own.
Readings carry noise of a heavy tail, nodes and leaves differ a little, crossing pairs collide,
other jobs disturb nodes for some rounds, and some pairs have no rate. `SweepRunner` measures and
judges. Nothing here knows how the analysis works.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest import mock

import numpy as np

from busbar import site as sites
from busbar.cluster.measure import run
from busbar.cluster.measure.rounds import SweepTimes
from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair
from busbar.slurm.topology import SwitchTopology

_GB_PER_S = 50.0
_OLD = 0.8
_MISSING, _CROWD, _BUSY = 0.02, 0.04, 0.10


@dataclass(frozen=True)
class Paths:
    """A fleet, its faults and the sweep."""

    nodes: int = 1000
    leaf_size: int = 32
    rails: int = 4
    over: float = 1.0
    """How many times the links of a leaf's nodes exceed its uplinks."""
    shared: bool = False
    """Whether the rails of a leaf share its uplinks; else each rail has its own switches."""
    gaussian: float = 0.0
    """Size of normal noise, without any other disturbance; 0 for all disturbances."""
    faults: bool = True
    old: str = ""
    """Where older nodes are, which have 80 % of the rate: ``leaf``, ``node``, ``kind`` (as
    ``node``, and Slurm knows which) or nowhere."""
    share: float = 0.25
    """Share of the older nodes."""
    rounds: int = 8
    limit: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Found:
    """What the sweep named, by the kind of the fault."""

    slow: dict[str, float]
    """Share of the rate that each slow node lost."""
    others: dict[str, str]
    """Ids of the other faults, and their kinds."""
    accused: dict[str, str]
    """Direction by id."""
    rounds: int
    verdict: str
    open: tuple[int, int]
    """Suspects, and what is not measured."""
    cpu_s: float
    notes: tuple[str, ...] = ()

    @property
    def false(self) -> list[str]:
        """What was accused and is well; the NICs of a slow node are slow, too."""
        known = self.slow.keys() | self.others.keys()
        return [one for one in self.accused if not {one, one.partition("/")[0]} & known]


class _Fleet:
    """Stands in for `Rounds`: measures by the model."""

    times = SweepTimes()
    gone: ClassVar[dict[str, str]] = {}
    absent: ClassVar[dict[str, str]] = {}
    stopped = ""

    def __init__(self, case: Paths) -> None:
        self.case = case
        self.draw = draw = np.random.default_rng(case.seed)
        self.names = [f"n{number}" for number in range(1, case.nodes + 1)]
        self.number = {name: number for number, name in enumerate(self.names)}
        self.leaf = np.arange(case.nodes) // case.leaf_size
        self.leaves = int(self.leaf.max()) + 1
        sizes = np.bincount(self.leaf).astype(float)
        scatter = 0 if case.gaussian else 1
        self.node = 1 + draw.normal(0, 0.008 * scatter, case.nodes)
        rack = 1 + draw.normal(0, 0.007 * scatter, self.leaves)
        rack[draw.random(self.leaves) < 0.15 * scatter] *= 0.97
        self.node *= rack[self.leaf]
        old = np.zeros(case.nodes, bool)
        if case.old:
            of = self.leaves if case.old == "leaf" else case.nodes
            old = np.isin(np.arange(of), draw.permutation(of)[: round(case.share * of)])
            old = old[self.leaf] if case.old == "leaf" else old
            self.node[old] *= _OLD
        self.old = old
        self.send = np.repeat(self.node[:, None], case.rails, 1)
        self.receive = self.send.copy()
        self.up = sizes / case.over * (case.rails if case.shared else 1)
        self.slow: dict[str, float] = {}
        self.others: dict[str, str] = {}
        if case.faults:
            self._add_faults()
        self.pace = np.zeros(case.nodes)
        self.disturbed_leaves: dict[int, int] = {}
        self.disturbed = np.zeros(case.nodes, int)
        self.round = 0

    def _add_faults(self) -> None:
        case, draw = self.case, self.draw
        leaf = int(draw.integers(self.leaves))
        free = draw.permutation(np.flatnonzero(self.leaf != leaf)).tolist()
        for _ in range(max(1, case.nodes // 100)):
            one, lost = free.pop(), float(draw.uniform(0.1, 0.3))
            self.send[one] *= 1 - lost
            self.receive[one] *= 1 - lost
            self.slow[self.names[one]] = lost
        if case.rails > 1:
            for kind in ("nic", "one way"):
                one, rail = free.pop(), int(draw.integers(case.rails))
                lost = float(draw.uniform(0.25, 0.6))
                self.send[one, rail] *= 1 - lost
                if kind == "nic":
                    self.receive[one, rail] *= 1 - lost
                self.others[f"{self.names[one]}/x{rail}"] = kind
        self.up[leaf] *= 1 - float(draw.uniform(0.3, 0.5))
        self.others[f"leaf{leaf}"] = "uplink"

    @property
    def topology(self) -> SwitchTopology:
        """What Slurm knows."""
        kinds = {n: str(self.old[at]) for at, n in enumerate(self.names)}
        leaves = {n: f"leaf{self.leaf[at]}" for at, n in enumerate(self.names)}
        return SwitchTopology(leaves, kinds if self.case.old == "kind" else {})

    def measure(self, plan: Sequence[PlannedPair]) -> None:
        """Measure all rounds of a plan."""
        rounds: dict[int, list[PlannedPair]] = {}
        for row in plan:
            rounds.setdefault(row.round, []).append(row)
        for number, rows in rounds.items():
            self.times = replace(self.times, rounds=self.times.rounds + 1)
            self.round += 1
            self.store.add(self._measured(number, rows))

    def _measured(self, number: int, rows: list[PlannedPair]) -> Iterable[MeasuredPair]:
        case, draw = self.case, self.draw
        a = np.array([self.number[row.a] for row in rows])
        b = np.array([self.number[row.b] for row in rows])
        crossing = self.leaf[a] != self.leaf[b]
        quiet = self._disturbances(a, b)
        single = []
        for rail in range(case.rails):
            # The adaptive routes of a collision hold for one reading.
            path = np.where(crossing, self._collisions(len(rows)), 1.0)
            forth = self._shared(a, b, rail, path) * quiet * self._noise(len(rows))
            back = self._shared(b, a, rail, path) * quiet * self._noise(len(rows))
            single.append((forth, back))
        whole = [sum(each) for each in zip(*single, strict=True)]
        if case.shared and case.rails > 1:
            whole = [np.minimum(each, each / case.over * 1.0) for each in whole]
        lost = draw.random(len(rows)) < (0 if case.gaussian else _MISSING)
        broken = draw.random(len(rows)) < 0.5
        passes = [(f"x{n}", pair) for n, pair in enumerate(single)] if case.rails > 1 else []
        for at, row in enumerate(rows):
            for name, (forth, back) in [*passes, (None, whole)]:
                if lost[at]:
                    state = PairState.ERROR if broken[at] else PairState.TIMEOUT
                    yield MeasuredPair(number, row.a, row.b, name, None, state)
                    continue
                ends = float(back[at]) * _GB_PER_S, float(forth[at]) * _GB_PER_S
                yield MeasuredPair(number, row.a, row.b, name, min(ends), PairState.OK, ends)

    def _collisions(self, count: int) -> np.ndarray:
        if self.case.gaussian:
            return np.ones(count)
        kind = self.draw.random(count)
        light = self.draw.uniform(0.80, 0.97, count)
        return np.where(kind < _CROWD, 0.55, np.where(kind < _CROWD + _BUSY, light, 1.0))

    def _noise(self, count: int) -> np.ndarray:
        draw = self.draw
        if self.case.gaussian:
            return np.maximum(0.01, 1 + self.case.gaussian * draw.standard_normal(count))
        tail = 1 - np.abs(draw.standard_t(3, count)) * 0.008
        burst = np.where(draw.random(count) < 0.01, draw.uniform(0.5, 0.95, count), 1.0)
        return np.clip(tail, 0.05, 1) * burst

    def _disturbances(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return what other jobs leave of each pair in this round."""
        if self.case.gaussian:
            return np.ones(len(a))
        draw = self.draw
        self.pace = 0.6 * self.pace + draw.normal(0, 0.008, self.case.nodes)
        factor = np.exp(-np.abs(self.pace))
        if self.round % 4 == 1:
            hit = draw.integers(self.leaves, size=-(-self.leaves // 11))
            self.disturbed_leaves = dict.fromkeys(hit.tolist(), 2)
            hit = draw.random(self.case.nodes) < 1 / 400
            self.disturbed[hit] = draw.integers(2, 5, int(hit.sum()))
        for leaf, left in list(self.disturbed_leaves.items()):
            if left > 0:
                factor[self.leaf == leaf] *= 0.9
            self.disturbed_leaves[leaf] = left - 1
        factor[self.disturbed > 0] *= 0.75
        self.disturbed = np.maximum(self.disturbed - 1, 0)
        return np.minimum(factor[a], factor[b])

    def _shared(self, a: np.ndarray, b: np.ndarray, rail: int, path: np.ndarray) -> np.ndarray:
        """Return the max-min fair rates of flows from ``a`` to ``b``."""
        rate = np.minimum(self.send[a, rail], self.receive[b, rail]) * path
        crossing = self.leaf[a] != self.leaf[b]
        out, into = self.leaf[a], self.leaf[b] + self.leaves
        room = np.concatenate([self.up, self.up])
        open_ = crossing.copy()
        while open_.any():
            flows = np.bincount(out[open_], minlength=len(room))
            flows += np.bincount(into[open_], minlength=len(room))
            level = np.where(flows > 0, room / np.maximum(flows, 1), np.inf)
            mine = np.minimum(level[out], level[into])
            done = open_ & (rate <= mine)
            if not done.any():
                least = np.flatnonzero(level <= level.min() * (1 + 1e-9))
                done = open_ & (np.isin(out, least) | np.isin(into, least))
                rate[done] = level.min()
            for ends in (out, into):
                room -= np.bincount(ends[done], rate[done], minlength=len(room))
            room = np.maximum(room, 0)
            open_ &= ~done
        return rate

    def leave_out(self, *_: object) -> None: ...
    def close(self) -> None: ...


def sweep(case: Paths) -> Found:
    """Measure one fleet as ``busbar sweep run`` does."""
    fleet = _Fleet(case)

    def rounds(program: object, nodes: object, store: Any, **_: object) -> _Fleet:
        fleet.store = store  # type: ignore[attr-defined]
        return fleet

    limit = _GB_PER_S * case.rails * 0.97 if case.limit else None
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(run, "Rounds", rounds),
        mock.patch("os.fsync"),
    ):
        request = run.SweepRequest(
            sites.load("local"), fleet.topology, case.rounds, case.seed, 1e6, limit=limit
        )
        runner = run.SweepRunner(request, fleet.names, Path(directory), lambda _: None)
        runner.prepare(resume=False)
        runner.measure(cast("Any", SimpleNamespace(seconds=1)), fleet.names)
        begin = process_time()
        outcome = runner.conclude()
        cpu = process_time() - begin
    analysis = outcome.analysis
    assert analysis is not None
    return Found(
        fleet.slow,
        fleet.others,
        {one.id: one.direction for one in analysis.accused},
        outcome.times.rounds,
        str(outcome.verdict),
        (len(analysis.suspects), len(analysis.unmeasured)),
        cpu,
        analysis.notes,
    )


HEAD = (
    "| fleet | seeds | slow nodes of 15 % and more | all slow nodes | others | falsely accused"
    " | rounds | verdicts | analyse, s |\n|" + "---|" * 9
)
FULL = Paths()
CASES: dict[str, Paths] = {
    "1.5:1": replace(FULL, over=1.5),
    "2:1": replace(FULL, over=2),
    "4:1": replace(FULL, over=4),
    "non-blocking": FULL,
    "2:1, one rail, 3 % normal noise": replace(FULL, over=2, rails=1, gaussian=0.03),
    "1.5:1, older leaves": replace(FULL, over=1.5, old="leaf"),
    "1.5:1, older nodes": replace(FULL, over=1.5, old="node"),
    "1.5:1, older nodes, known": replace(FULL, over=1.5, old="kind"),
    "2:1, no faults": replace(FULL, over=2, faults=False),
    "non-blocking, no faults, limit": replace(FULL, faults=False, limit=True),
    "1.5:1, 64 nodes on leaves of 16": replace(FULL, nodes=64, leaf_size=16, over=1.5),
    **{f"2:1, {count} rounds": replace(FULL, over=2, rounds=count) for count in (4, 6, 12)},
    "10,000 nodes, 2 rails, 1.5:1": replace(FULL, nodes=10_000, rails=2, over=1.5),
    "10,000 nodes, 2 rails": replace(FULL, nodes=10_000, rails=2),
}


def row(label: str, case: Paths, seeds: Sequence[int]) -> tuple[str, list[Found]]:
    """Return one row of the table."""
    found = [sweep(replace(case, seed=seed)) for seed in seeds]
    named = [(lost, node in one.accused) for one in found for node, lost in one.slow.items()]
    large = [hit for lost, hit in named if lost >= 0.15]
    kinds: dict[str, list[bool]] = {}
    for one in found:
        for name, kind in one.others.items():
            way = one.accused.get(name)
            # A direction that is slow alone is named, and no other.
            kinds.setdefault(kind, []).append(way == ("sending" if kind == "one way" else ""))
    others = ", ".join(f"{kind} {sum(hits)}/{len(hits)}" for kind, hits in kinds.items())
    verdicts: dict[str, int] = {}
    for one in found:
        verdicts[one.verdict] = verdicts.get(one.verdict, 0) + 1
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return (
        f"| {label} | {len(seeds)} | {sum(large)}/{len(large)} | {sum(h for _, h in named)}/"
        f"{len(named)} | {others} | {sum(len(one.false) for one in found)} |"
        f" {min(one.rounds for one in found)}-{max(one.rounds for one in found)} | {words} |"
        f" {max(one.cpu_s for one in found):.1f} |",
        found,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", type=int, nargs="?", default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    print(HEAD)  # noqa: T201 - its output
    for label, case in CASES.items():
        if args.only in label:
            text, found = row(label, case, range(args.first, args.first + args.seeds))
            print(text, flush=True)  # noqa: T201 - as above
            for one in found if args.show else ():
                print(one.false, one.open, one.notes[:4])  # noqa: T201 - as above
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "MB")  # noqa: T201


if __name__ == "__main__":
    main()
