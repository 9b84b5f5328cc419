# SPDX-License-Identifier: MIT
"""What is accused, on fleets of a generator that shares nothing with the analysis."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.second_pass import plan_suspects
from busbar.slurm.topology import SwitchTopology
from tests.cases import cases

from .generator import Rate, Row, found, ids, matchings, measured, names, round_robin, slower

SEEDS = range(8)
LEAVES = {f"n{n}": "s1" if n < 5 else "s2" for n in range(1, 9)}
LEAST = 22.0


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable


def gaussian(seed: int, size: float = 0.03) -> Callable[[Row], float]:
    draw = seeded(seed)
    return lambda row: max(0.01, 1 + size * draw.gauss(0, 1))


def eight(seed: int) -> list[Row]:
    """Seven rounds of eight nodes, in another order for each seed."""
    return list(round_robin(seeded(seed).sample(names(8), 8)))


def nic(slow: dict[tuple[str, str], float]) -> Rate:
    """Two NICs of 25 GB/s; both together, the slow one counts half."""

    def rate(a: str, b: str, name: str | None) -> float:
        shares = [
            min(slow.get((node, one), 1.0) for node in (a, b))
            for one in (["x0", "x1"] if name is None else [name])
        ]
        return 25.0 * sum(shares)

    return rate


EIGHT: dict[str, tuple[dict[str, float], list[tuple[str, str]]]] = {
    "none": ({}, []),
    "one at a fifth": ({"n3": 0.2}, [("node", "n3")]),
    "one 20 % slow": ({"n3": 0.8}, [("node", "n3")]),
    "two": ({"n3": 0.2, "n6": 0.2}, [("node", "n3"), ("node", "n6")]),
    "two of different rates": ({"n3": 0.2, "n6": 0.7}, [("node", "n3"), ("node", "n6")]),
}


def test_eight_nodes() -> None:
    wrong = [
        (case, seed, least, ids_found)
        for case, (factors, accused) in EIGHT.items()
        for seed in SEEDS
        for rows in [measured(eight(seed), slower(factors), gaussian(seed))]
        for least in (None, LEAST)
        if (ids_found := ids(found(rows, LEAVES, least))) != accused
    ]
    assert wrong == []


NICS: dict[str, tuple[dict[tuple[str, str], float], list[tuple[str, str]]]] = {
    "none": ({}, []),
    "one of two": ({("n4", "x1"): 0.2}, [("nic", "n4/x1")]),
    "one each of two nodes": (
        {("n4", "x1"): 0.2, ("n7", "x0"): 0.2},
        [("nic", "n4/x1"), ("nic", "n7/x0")],
    ),
    "both": ({("n4", "x0"): 0.2, ("n4", "x1"): 0.2}, [("node", "n4")]),
}


def test_two_nics() -> None:
    wrong = [
        (case, seed, names_of_nics, ids_found)
        for case, (slow, accused) in NICS.items()
        for seed in SEEDS
        for names_of_nics in (("x0", "x1"), ("x0", "x1", None))
        for rows in [measured(eight(seed), nic(slow), gaussian(seed), names_of_nics)]
        if (ids_found := ids(found(rows))) != accused
    ]
    assert wrong == []


@cases("count", [2, 3])
@cases("least", [None, LEAST])
@cases("factors", [{}, {"n1": 0.2}, {"n1": 0.2, "n2": 0.2, "n3": 0.2}])
def test_two_and_three_nodes_are_never_accused(
    count: int, least: float | None, factors: dict[str, float]
) -> None:
    for seed in SEEDS:
        pairs = matchings(names(count), 9, seeded(seed))
        analysis = found(measured(pairs, slower(factors), gaussian(seed)), None, least)
        assert not analysis.accused
        assert bool(analysis.suspects) or not factors or not least


def test_one_of_four_nodes_is_accused_but_not_by_two_rows() -> None:
    pairs = list(round_robin(names(4)))
    rows = measured(pairs, slower({"n2": 0.2}), gaussian(1))
    assert ids(found(rows)) == [("node", "n2")]
    assert found([row for row in rows if row["round"] < 3]).accused == ()


def test_one_burst_accuses_nobody() -> None:
    for seed in SEEDS:
        rows = measured(eight(seed), slower({}), gaussian(seed))
        burst = seeded(seed).choice(rows)
        burst["gb_per_s"] = 0.5
        analysis = found(rows, LEAVES, LEAST)
        assert (analysis.accused, seed) == ((), seed)
        suspects = {frozenset((one.a, one.b)) for one in analysis.suspects}
        assert (frozenset((burst["a"], burst["b"])) in suspects, seed) == (True, seed)


def test_a_leaf_that_is_slow_as_a_whole_needs_a_limit() -> None:
    slow = slower({node: 0.2 for node, leaf in LEAVES.items() if leaf == "s1"})
    rows = measured(eight(1), slow, gaussian(1))
    relative = found(rows, LEAVES)
    assert relative.accused == ()
    assert any("give --limit" in note for note in relative.notes)
    analysis = found(rows, LEAVES, LEAST)
    assert ids(analysis) == [("uplink", "s1")]
    assert analysis.accused[0].nodes == ("n1", "n2", "n3", "n4")
    # Without the switches its nodes are all there is.
    assert ids(found(rows, None, LEAST)) == [("node", f"n{n}") for n in range(1, 5)]


def test_the_path_between_two_leaves() -> None:
    def rate(a: str, b: str, _: str | None) -> float:
        return 25.0 if LEAVES[a] == LEAVES[b] else 5.0

    rows = measured(eight(1), rate, gaussian(1))
    assert ids(found(rows, LEAVES, LEAST)) == [("uplink", "s1-s2")]
    relative = found(rows, LEAVES)
    assert relative.accused == ()
    assert any("give --limit" in note for note in relative.notes)


@cases("least", [None, LEAST])
def test_the_uplinks_of_one_leaf_of_four(least: float | None) -> None:
    leaves = {node: f"s{n // 4}" for n, node in enumerate(names(16))}

    def rate(a: str, b: str, _: str | None) -> float:
        return 10.0 if leaves[a] != leaves[b] and "s2" in (leaves[a], leaves[b]) else 25.0

    rows = [vars_of(row) for row in plan(names(16), SwitchTopology(leaves), 8, 1)]
    analysis = found(measured(rows, rate, gaussian(2)), leaves, least)
    assert ids(analysis) == [("uplink", "s2")]


def test_a_fleet_that_is_slow_as_a_whole_needs_a_limit() -> None:
    rows = measured(eight(3), slower(dict.fromkeys(names(8), 0.8)), gaussian(3))
    assert found(rows).accused == ()
    analysis = found(rows, LEAVES, LEAST)
    assert ids(analysis) == [("node", node) for node in names(8)]
    assert "common" in analysis.accused[0].evidence


@cases("share", [0.2, 0.3, 0.5, 0.7, 0.8])
def test_two_kinds_of_nodes_are_not_accused_without_a_limit(share: float) -> None:
    nodes = names(120)
    slow = dict.fromkeys(nodes[: int(share * len(nodes))], 0.5)
    pairs = list(matchings(nodes, 8, seeded(1)))
    rows = measured(pairs, slower(slow), gaussian(1))
    analysis = found(rows)
    assert analysis.accused == ()
    assert any("another kind" in note for note in analysis.notes)
    # With a limit, nodes that only met slow ones are decided in the second pass.
    noise = gaussian(2)
    again = plan_suspects(found(rows, None, LEAST).suspects, 9)
    rows += measured(map(vars_of, again), slower(slow), noise)
    judged = {name for _, name in ids(found(rows, None, LEAST))}
    assert judged <= set(slow)
    assert share > 0.7 or len(judged) > 0.95 * len(slow)


def test_a_link_is_accused_after_the_second_pass() -> None:
    def rate(a: str, b: str, _: str | None) -> float:
        return 5.0 if {a, b} == {"n2", "n7"} else 25.0

    noise = gaussian(4)
    rows = measured(eight(4), rate, noise)
    first = found(rows)
    assert first.accused == ()
    assert {frozenset((one.a, one.b)) for one in first.suspects} == {frozenset(("n2", "n7"))}
    again = [vars_of(row) for row in plan_suspects(first.suspects, first.last_round + 1)]
    second = found([*rows, *measured(again, rate, noise)])
    assert ids(second) == [("link", "n2-n7")]
    # A link that was slow once, and then is well, is not accused and not suspected.
    well = found([*rows, *measured(again, slower({}), noise)])
    assert (well.accused, well.suspects) == ((), ())


@cases("count", [4, 8])
def test_slow_links_accuse_no_node_however_often_they_repeat(count: int) -> None:
    links = [{"n1", "n2"}, {"n1", "n3"}][: count // 4]

    def rate(a: str, b: str, _: str | None) -> float:
        return 17.0 if {a, b} in links else 25.0

    accused = [("link", f"n1-n{n}") for n in (2, 3)[: len(links)]]
    for seed in SEEDS:
        noise = gaussian(seed)
        order = seeded(seed).sample(names(count), count)
        rows = measured(round_robin(order), rate, noise)
        for _ in range(3):
            analysis = found(rows)
            again = plan_suspects(analysis.suspects, analysis.last_round + 1)
            rows += measured(map(vars_of, again), rate, noise)
        assert (seed, ids(found(rows))) == (seed, accused)


@cases("least", [None, LEAST])
@cases("names_of_nics", [("x0", "x1"), ("x0", "x1", None)])
def test_a_node_at_the_tolerance_is_not_taken_for_one_of_its_nics(
    names_of_nics: tuple[str | None, ...], least: float | None
) -> None:
    nodes = names(64)
    accused = []
    for seed in SEEDS:
        pairs = matchings(nodes, 8, seeded(seed))
        draw = gaussian(seed)
        rows = measured(pairs, slower({"n5": 0.87}), draw, names_of_nics)
        accused += ids(found(rows, None, least))
    assert accused
    assert set(accused) == {("node", "n5")}


def vars_of(row: object) -> Row:
    return {key: getattr(row, key) for key in ("round", "a", "b")}


def test_suspects_meet_good_nodes_of_their_leaf() -> None:
    leaves = {node: f"s{n // 8}" for n, node in enumerate(names(64))}
    rows = [vars_of(row) for row in plan(names(64), SwitchTopology(leaves), 2, 1)]
    analysis = found(measured(rows, slower({"n9": 0.5, "n20": 0.5}), gaussian(1)), leaves)
    assert analysis.accused == ()
    suspects = {one.a for one in analysis.suspects} & {"n9", "n20"}
    assert suspects == {"n9", "n20"}
    for one in analysis.suspects:
        if one.a in suspects:
            assert leaves[one.a] == leaves[one.b]
            assert one.b not in suspects
    planned = plan_suspects(analysis.suspects, 3)
    assert len(planned) == len(analysis.suspects)
    busy = [(row.round, node) for row in planned for node in (row.a, row.b)]
    assert len(set(busy)) == len(busy)


def lognormal(draw: random.Random, _: dict[str, str]) -> Callable[[Row], float]:
    """A tenth of the readings is disturbed, by up to several times their rate."""
    return lambda row: (
        math.exp(-0.5 * draw.expovariate(1))
        if draw.random() < 0.1
        else math.exp(-0.03 * abs(draw.gauss(0, 1)))
    )


def by_leaf(draw: random.Random, leaves: dict[str, str]) -> Callable[[Row], float]:
    """A leaf is disturbed as a whole, anew in each round."""
    drawn: dict[tuple[str, int], float] = {}

    def noise(row: Row) -> float:
        for node in (row["a"], row["b"]):
            drawn.setdefault((leaves[node], row["round"]), math.exp(-abs(draw.gauss(0, 0.06))))
        least = min(drawn[leaves[node], row["round"]] for node in (row["a"], row["b"]))
        return least * (1 + 0.03 * draw.gauss(0, 1))

    return noise


@cases("missing", [0.0, 0.1])
@cases("noise", [lognormal, by_leaf])
@cases("bad", [0, 6])
def test_hostile_noise(
    bad: int,
    noise: Callable[[random.Random, dict[str, str]], Callable[[Row], float]],
    missing: float,
) -> None:
    nodes = names(512)
    leaves = {node: f"s{n // 16}" for n, node in enumerate(nodes)}
    for seed in (1, 2):
        draw = seeded(seed)
        slow = dict.fromkeys(draw.sample(nodes, bad), 0.8)
        disturb = noise(draw, leaves)
        planned = [vars_of(row) for row in plan(nodes, SwitchTopology(leaves), 8, seed)]
        rows = measured(planned, slower(slow), disturb)
        rows = [row for row in rows if draw.random() >= missing]
        first = found(rows, leaves)
        again = [vars_of(row) for row in plan_suspects(first.suspects, 9)]
        second = found([*rows, *measured(again, slower(slow), disturb)], leaves)
        assert {one for _, one in ids(second)} == set(slow)


def test_what_failed_is_listed_and_nobody_is_accused_for_it() -> None:
    rows = measured(eight(5), slower({}), gaussian(5))
    for row in rows:
        if "n3" in (row["a"], row["b"]):
            row.update(gb_per_s=None, state="dead")
        if "n5" in (row["a"], row["b"]) and row["round"] > 4:
            row.update(gb_per_s=0.1, state="timeout")
        if row["round"] == 2 and {"n3", "n5"}.isdisjoint({row["a"], row["b"]}):
            row.update(gb_per_s=float("nan"))
            lost = sorted((row["a"], row["b"]))
            break
    analysis = found(rows)
    assert analysis.accused == ()
    assert "-".join(lost) in analysis.unmeasured

    rows = measured(eight(5), slower({}), gaussian(5))
    for row in rows:
        if "n3" in (row["a"], row["b"]) or ("n5" in (row["a"], row["b"]) and row["round"] > 4):
            row.update(gb_per_s=None, state="dead")
    analysis = found(rows)
    assert (analysis.accused, analysis.unmeasured) == ((), ("n3", "n5"))
    # The same if the rows of one node are not there at all.
    rows = [row for row in rows if "n5" not in (row["a"], row["b"]) or row["state"] == "ok"]
    rows += [{**row, "gb_per_s": 25.0, "state": "ok"} for row in rows if row["state"] != "ok"]
    analysis = found(rows)
    assert (analysis.accused, analysis.unmeasured) == ((), ("n5",))


def test_a_nic_that_failed_is_listed() -> None:
    rows = measured(eight(6), nic({}), gaussian(6), ("x0", "x1"))
    for row in rows:
        if row["nic"] == "x1" and "n2" in (row["a"], row["b"]):
            row.update(gb_per_s=-1.0)
    assert found(rows).unmeasured == ("n2/x1",)


def test_a_failed_row_without_a_partner_lists_the_node() -> None:
    rows = measured(eight(6), slower({}), gaussian(6))
    rows[3].update(b=None, gb_per_s=None, state="dead")
    assert found(rows).unmeasured == (rows[3]["a"],)


def test_nothing_measured_at_all() -> None:
    rows = [{**row, "nic": None, "gb_per_s": None, "state": "error"} for row in eight(1)]
    analysis = found(rows, LEAVES, LEAST)
    assert (analysis.accused, analysis.suspects) == ((), ())
    assert analysis.unmeasured == tuple(names(8))


def test_a_resumed_sweep_counts_the_last_rate() -> None:
    rows = measured(eight(7), slower({"n4": 0.2}), gaussian(7))
    before = [{**row, "a": row["b"], "b": row["a"], "gb_per_s": 3.0} for row in rows]
    failed = [{**row, "gb_per_s": None, "state": "timeout"} for row in rows]
    analysis = found([*before, *rows, *failed])
    assert ids(analysis) == [("node", "n4")]
    assert analysis.unmeasured == ()
    assert ids(found(rows)) == [("node", "n4")]


def test_pairs_across_leaves_may_be_slower() -> None:
    leaves = {node: f"s{n // 16}" for n, node in enumerate(names(128))}
    factors = slower({"n100": 0.8})

    def rate(a: str, b: str, name: str | None) -> float:
        return factors(a, b, name) * (1 if leaves[a] == leaves[b] else 0.5)

    rows = [vars_of(row) for row in plan(names(128), SwitchTopology(leaves), 8, 1)]
    for known in (leaves, None):
        analysis = found(measured(rows, rate, gaussian(1)), known)
        assert ids(analysis) == [("node", "n100")]
