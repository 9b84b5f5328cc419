# SPDX-License-Identifier: MIT
"""Plan, measure and analyse a fleet that does not exist, with as many faults as asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import process_time

import numpy as np

from busbar.cluster.sweep.analyse import Analysis, analyse
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.rows import MeasuredPair, PlannedPair, Results, read_results
from busbar.cluster.sweep.second_pass import plan_suspects
from busbar.slurm.hostlist import natural
from busbar.slurm.topology import SwitchTopology
from busbar.words import grouped

from .fleet_model import FaultKind, Fleet, Noise


@dataclass(frozen=True)
class Scenario:
    """The fleet, its faults and the sweep."""

    nodes: int
    bad: int
    kind: FaultKind = "node"
    noise: float = 0.03
    tail: Noise = "normal"
    slowdown: float = 0.2
    rounds: int = 8
    seed: int = 0
    leaf_size: int = 32
    nics: int = 2
    """NICs of a node if the faults are NICs."""
    slow_leaf: bool = False
    """Whether all nodes of one leaf are slow as well."""


@dataclass(frozen=True)
class Outcome:
    """What the sweep found."""

    second_pass_rounds: int
    bad: tuple[str, ...]
    accused: tuple[str, ...]
    plan_s: float
    """CPU time, as of `analyse_s`."""
    analyse_s: float
    """To read and analyse the rows of both passes; they are in one file."""

    @property
    def recall(self) -> float:
        """Share of the faults that were named; 1 if there are none."""
        found = len(set(self.bad) & set(self.accused))
        return found / len(self.bad) if self.bad else 1.0

    @property
    def false_accusations(self) -> int:
        """How many healthy parts were accused."""
        return len(set(self.accused) - set(self.bad))


_PASSES = 4  # `sweep run` has at most so many, and measures what is accused once more


def simulate(scenario: Scenario) -> Outcome:
    """Run a sweep with its further passes; raise ``ValueError`` for more faults than places."""
    nodes = [f"n{number}" for number in range(scenario.nodes)]
    topology = SwitchTopology(
        {node: f"leaf{n // scenario.leaf_size}" for n, node in enumerate(nodes)}
    )
    noise = np.random.default_rng(scenario.seed)
    start = process_time()
    first = plan(nodes, topology, scenario.rounds, scenario.seed)
    plan_s = process_time() - start
    fleet, bad = _with_faults(Fleet(tuple(nodes), topology), scenario, first)
    rows = tuple(fleet.measure(first, noise))
    start = process_time()
    found = analyse(Results(rows), topology, {})
    analyse_s = process_time() - start
    seconds = 0.0
    for _ in range(_PASSES):
        again = plan_suspects(found.suspects, found.last_round + 1)
        rows += tuple(fleet.measure(again, noise))
        found, each_s = _from_file(rows, topology)
        seconds = max(seconds, each_s)
    return Outcome(
        second_pass_rounds=found.last_round - scenario.rounds,
        bad=bad,
        accused=_ids(found),
        plan_s=plan_s,
        analyse_s=max(analyse_s, seconds),
    )


def _from_file(rows: Iterable[MeasuredPair], topology: SwitchTopology) -> tuple[Analysis, float]:
    """Return the analysis of rows that were written, and the time to read and analyse them."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "results.jsonl"
        with file.open("w") as stream:
            stream.writelines(row.line() for row in rows)
        start = process_time()
        return analyse(read_results(file), topology, {}), process_time() - start


def _ids(found: Analysis) -> tuple[str, ...]:
    return tuple(one.id for one in found.accused)


def _with_faults(
    fleet: Fleet, scenario: Scenario, first: list[PlannedPair]
) -> tuple[Fleet, tuple[str, ...]]:
    """Return the fleet with its faults, and their ids."""
    random = Random(f"faults {scenario.seed}")  # noqa: S311
    share = 1 - scenario.slowdown
    fleet = replace(fleet, noise=scenario.noise, tail=scenario.tail)
    leaves = grouped((leaf, node) for node, leaf in fleet.topology.leaf_of.items())
    places = {"uplink": len(leaves), "link": len(first)}.get(scenario.kind, len(fleet.nodes))
    if scenario.slow_leaf:
        places -= {"uplink": 1, "link": len(first)}.get(scenario.kind, scenario.leaf_size)
    if scenario.bad > max(0, places):
        raise ValueError(f"{scenario.bad} faults in {max(0, places)} places for a {scenario.kind}")
    ids: list[str] = []
    slow_nodes: dict[str, float] = {}
    if scenario.slow_leaf:
        leaf = random.choice(sorted(leaves))
        slow_nodes = dict.fromkeys(leaves[leaf], share)
        ids.append(leaf)
    healthy = [node for node in fleet.nodes if node not in slow_nodes]
    match scenario.kind:
        case "node":
            bad = random.sample(healthy, scenario.bad)
            slow_nodes |= dict.fromkeys(bad, share)
            ids += bad
        case "nic":
            nics = tuple(f"nic{number}" for number in range(scenario.nics))
            chosen = [(node, random.choice(nics)) for node in random.sample(healthy, scenario.bad)]
            fleet = replace(fleet, nics=nics, slow_nics=dict.fromkeys(chosen, share))
            # A node with one NIC has no other that could be well.
            ids += [f"{node}/{nic}" if scenario.nics > 1 else node for node, nic in chosen]
        case "link":
            pairs = [row for row in first if not slow_nodes.keys() & {row.a, row.b}]
            links = random.sample(pairs, scenario.bad)
            slow = {frozenset((row.a, row.b)): share for row in links}
            fleet = replace(fleet, slow_links=slow)
            ids += ["-".join(sorted((row.a, row.b), key=natural)) for row in links]
        case "uplink":
            names = random.sample(
                [leaf for leaf in sorted(leaves) if leaf not in ids], scenario.bad
            )
            fleet = replace(fleet, slow_uplinks=dict.fromkeys(names, share))
            ids += names
    return replace(fleet, slow_nodes=slow_nodes), tuple(ids)
