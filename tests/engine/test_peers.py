# SPDX-License-Identifier: MIT
"""A slow node is named by comparison with the others, and nobody else is."""

from __future__ import annotations

import random

import pytest

from busbar import site as sites
from busbar.check import run as check_run
from busbar.check.places import NodePlace, NodeSweep, ring
from busbar.check.processes import Interruption
from busbar.check.reframe import ReFrame
from busbar.check.run import RunPlan
from busbar.engine.peers import NodeReading, doubtful, outcomes_of_slow, slow_nodes
from busbar.engine.results import Outcome, Result
from busbar.verdict import Verdict


def of_pairs(rates: dict[str, float], scatter: float, seed: int) -> list:
    """Readings of a ring in which the slower node of a pair decides."""
    noise = random.Random(seed)  # noqa: S311 - scatter
    return [
        NodeReading(pair, min(rates[node] for node in pair) * noise.uniform(1 - scatter, 1))
        for pair in ring(list(rates))
    ]


def of_nodes(*rates: float) -> list:
    """One reading of each node."""
    return [NodeReading((name,), rate) for name, rate in zip("abcd", rates, strict=True)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [4, 5, 16, 130])
def test_one_slow_node_of_a_ring_is_named_and_nobody_else(seed, count):
    """At less than half the rate of the others, whose readings scatter by 15 %."""
    names = [f"n{n}" for n in range(count)]
    slow = [*names, None][seed % (count + 1)]
    rates = {name: 1.0 * (0.45 if name == slow else 1) for name in names}
    found = [each.node for each in slow_nodes(of_pairs(rates, 0.15, seed))]
    assert found == ([slow] if slow else [])


def test_of_two_nodes_nobody_is_accused():
    two = [NodeReading(("a",), 1.0), NodeReading(("b",), 0.1)]
    assert slow_nodes(two) == doubtful(two) == []
    assert slow_nodes([]) == doubtful([]) == []


def test_nodes_that_scatter_widely_accuse_nobody():
    assert slow_nodes(of_nodes(1, 2, 4, 0.9)) == []


def test_the_number_of_the_node_is_shown_beside_those_of_the_others():
    (slow,) = slow_nodes(of_nodes(1.1, 0.2, 1.0, 0.9))
    assert slow.text() == (
        "b reaches 0.2 GB/s, the other 3 nodes 0.9 to 1.1; 60% of their median (1) is the least"
    )


def test_a_noisy_node_is_measured_again_and_does_not_hide_the_slow_one():
    """All that are far below the fastest are doubtful, but only one of them stands out."""
    loaded = of_nodes(0.26, 1.0, 2.4, 3.3)
    assert doubtful(loaded) == ["a", "b"]
    assert [each.node for each in slow_nodes(loaded)] == ["a"]
    assert doubtful(of_nodes(1, 1.1, 1.5, 0.9)) == []


def row(where: str, rate: float, **more) -> Result:
    given = {"metric": "bandwidth", "buffers": "H H", "bytes": 1024} | more
    return Result("net", Verdict.UNJUDGED, where=where, gb_per_s=rate, **given)


def outcome(*results: Result) -> Outcome:
    return Outcome("net", "ucx-1.14", results, "lab", "wheels", nodes="x")


def test_only_readings_without_a_band_are_compared():
    rates = {"a": 1.0, "b": 0.1, "c": 1.0}
    banded = [outcome(row(n, rate, low=0.05, high=2.0)) for n, rate in rates.items()]
    assert outcomes_of_slow(banded) == []
    (slow,) = outcomes_of_slow([outcome(row(n, rate)) for n, rate in rates.items()])
    assert (slow.verdict, slow.partition) == (Verdict.DEGRADED, "lab")
    assert [each.where for each in slow.results] == ["b"]


def test_readings_of_other_sizes_are_not_compared():
    mixed = [outcome(row("a", 1.0), row("a", 0.1, bytes=8)), outcome(row("b", 1.0))]
    mixed.append(outcome(row("c", 0.1, bytes=8)))
    assert outcomes_of_slow(mixed) == []


def test_a_node_that_was_measured_with_a_slow_one_only_is_not_named():
    rates = {("a", "b"): 1.0, ("b", "c"): 0.1, ("c", "d"): 0.1, ("a", "e"): 1.0}
    readings = [NodeReading(pair, rate) for pair, rate in rates.items()]
    assert [each.node for each in slow_nodes(readings)] == ["c"]
    assert doubtful(readings) == ["c", "d"]


@pytest.mark.parametrize("role", ["sends", "receives"])
def test_a_link_that_is_slow_in_one_direction_is_named(role):
    """Where others have it as their partner, they have a faster one as well."""
    rows = []
    for pair in ring(["a", "b", "c", "d"]):
        for n, (sender, receiver) in enumerate((pair, pair[::-1])):
            slow = {"sends": sender, "receives": receiver}[role] == "b"
            rate = 0.1 if slow else 1.0
            rows.append(row(f"{sender},{receiver}", rate, pair=f"{n}->{1 - n}"))
    (slow,) = outcomes_of_slow([outcome(each) for each in rows])
    assert [each.where for each in slow.results] == ["b"]
    assert f"b {role} at 0.1 GB/s, the other 3 nodes 1 to 1;" in slow.results[0].message


def test_each_node_is_in_two_pairs_and_half_of_them_run_at_once():
    pairs = ring(["a", "b", "c", "d"])
    assert pairs == [("a", "b"), ("c", "d"), ("b", "c"), ("d", "a")]
    assert ring(["a", "b"]) == [("a", "b")]
    assert ring(["a"]) == []
    sweep = NodeSweep({"lab": ("a", "b", "c")})
    assert [place.nodes for place in sweep.places("lab", 1)] == [("a",), ("b",), ("c",)]
    assert sweep.places("lab", 4) == []
    assert sweep.places("lab", 3) == [NodePlace("lab", ("a", "b", "c"))]
    assert sweep.places("other", 1) == []
    again = NodeSweep({}, (NodePlace("lab", ("a",)), NodePlace("big", ("b",))))
    assert again.places("lab", 1) == [NodePlace("lab", ("a",))]


@pytest.mark.parametrize(
    ("again", "signal_name", "verdict"),
    [
        ({"n3": 1.2, "n2": 3.0}, "", Verdict.DEGRADED),
        ({"n3": 2.9}, "", None),
        ({}, "", Verdict.UNKNOWN),
        ({"n3": 1.2}, "SIGTERM", Verdict.UNKNOWN),
    ],
)
def test_a_node_is_degraded_only_if_it_was_measured_again(
    again, signal_name, verdict, tmp_path, monkeypatch
):
    """Its job may be refused, or a signal may end the run before."""
    rates = {"n1": 2.4, "n2": 3.1, "n3": 1.3, "n4": 2.8}
    first, repeats = (
        [(None, outcome(row(node, rate))) for node, rate in each.items()]
        for each in (rates, again)
    )
    monkeypatch.setattr(check_run, "_run_once", lambda *_: first)
    monkeypatch.setattr(check_run, "_repeat", lambda *_: repeats)
    interruption = Interruption()
    interruption.name = signal_name
    plan = RunPlan(
        sites.load("local"),
        tmp_path,
        "",
        tmp_path,
        retries=1,
        sweep=NodeSweep({"lab": tuple(rates)}),
    )
    outcomes = check_run.run(plan, lambda _: None, ReFrame.__new__(ReFrame), interruption)
    found = [(r.where, r.verdict) for o in outcomes for r in o.results if r.message]
    assert found == ([("n3", verdict)] if verdict else [])
