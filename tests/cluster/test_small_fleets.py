# SPDX-License-Identifier: MIT
"""Fleets so small that most pairs of a healthy node may be with slow ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from busbar.cluster.sweep.analyse import Analysis, analyse
from busbar.cluster.sweep.limits import of_limit
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.rows import MeasuredPair, PairState, Results
from busbar.cluster.sweep.second_pass import plan_suspects
from busbar.slurm.topology import SwitchTopology
from tests.cases import cases

from ..bench.fleet_model import FaultKind
from ..bench.sweep_simulation import Scenario, simulate

Rate = Callable[[str, str], float]


def swept(leaves: dict[str, int], rate: Rate, limit: float | None = None) -> Analysis:
    """Return what a sweep of leaves with so many nodes finds, after its second passes."""
    of_node = {f"{leaf}n{n}": leaf for leaf, count in sorted(leaves.items()) for n in range(count)}
    topology, nodes = SwitchTopology(of_node), list(of_node)
    least = of_limit(limit, 0.1, [None]) if limit else {}
    planned = plan(nodes, topology, min(8, len(nodes) - 1), 0)
    rows: list[MeasuredPair] = []
    for number in range(3):
        rows += [
            MeasuredPair(row.round, row.a, row.b, None, rate(row.a, row.b) * noise, PairState.OK)
            for at, row in enumerate(planned)
            for noise in [1 + (at * 7 % 5 - 2) * 0.005]  # up to one percent
        ]
        found = analyse(Results(tuple(rows)), topology, least)
        planned = plan_suspects(found.suspects, found.last_round + 1)
        if not planned or number == 2:
            break
    return found


def ids(found: Analysis) -> list[str]:
    return [one.id for one in found.accused]


def leaf(node: str) -> str:
    return node[0]


def test_the_nodes_of_a_slow_leaf_do_not_accuse_one_that_met_no_other() -> None:
    found = swept({"a": 1, "b": 5}, lambda *ends: 0.5 if "b" in map(leaf, ends) else 1, limit=1)
    assert ids(found) == ["b"]
    assert any("an0" in (pair.a, pair.b) for pair in found.suspects)


def test_two_nodes_that_are_fast_together_are_not_slow() -> None:
    """With any other leaf they are, over their uplinks."""

    def rate(a: str, b: str) -> float:
        return 0.1 if leaf(a) != leaf(b) and "c" in (leaf(a), leaf(b)) else 1

    assert not {"cn0", "cn1"} & set(ids(swept({"a": 1, "b": 3, "c": 2}, rate)))


@cases("count", [3, 4, 6])
def test_the_links_of_a_slow_leaf_are_not_named_for_it(count: int) -> None:
    """Without a limit pairs across leaves are no slower than others of them."""
    found = swept({"a": count, "b": count}, lambda *ends: 0.5 if "a" in map(leaf, ends) else 1)
    assert ids(found) == []
    assert not found.decided


SIXTY_FOUR = Scenario(nodes=64, bad=1, leaf_size=16)


@cases(
    "scenario",
    [
        *(replace(SIXTY_FOUR, kind="uplink", seed=seed) for seed in (4, 11, 12, 14)),
        *(Scenario(512, 2, kind, leaf_size=16, seed=3) for kind in get_args(FaultKind)),
        Scenario(nodes=16, bad=1, kind="nic", nics=1),  # the only NIC of a node is the node
        Scenario(nodes=600, bad=3, tail="t3", slow_leaf=True),
        # A slow node that is fast in one of the three pairs on its leaf, and a node that is well
        # and slow in three of four.
        Scenario(nodes=8, bad=1, tail="t3", leaf_size=4, rounds=7, seed=92),
        Scenario(nodes=64, bad=0, tail="t3", leaf_size=16, seed=141),
    ],
)
def test_each_fault_of_a_model_is_found_and_nothing_else(scenario: Scenario) -> None:
    found = simulate(scenario)
    assert sorted(found.accused) == sorted(found.bad)
    assert len(found.bad) == scenario.bad + scenario.slow_leaf


def test_a_model_has_no_more_faults_than_places() -> None:
    for scenario in (Scenario(nodes=4, bad=5), Scenario(nodes=64, bad=3, kind="uplink")):
        with pytest.raises(ValueError, match=f"{scenario.bad} faults in"):
            simulate(scenario)
