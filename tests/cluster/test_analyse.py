# SPDX-License-Identifier: MIT
"""What is accused, on fleets of a generator that shares nothing with the analysis."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import product

from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.second_pass import pairs_of_suspects, plan_suspects
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


def vars_of(row: object) -> Row:
    return {key: getattr(row, key) for key in ("round", "a", "b")}


def planned_rows(leaves: dict[str, str], rounds: int, seed: int = 1) -> list[Row]:
    return [vars_of(row) for row in plan([*leaves], SwitchTopology(leaves), rounds, seed)]


def again(analysis: Analysis) -> list[Row]:
    """The pairs of a second pass."""
    return [vars_of(row) for row in plan_suspects(analysis.suspects, analysis.last_round + 1)]


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
@cases("factors", [{}, {"n1": 0.2}, {"n1": 0.2, "n2": 0.2, "n3": 0.2}])
def test_two_and_three_nodes_are_never_accused(count: int, factors: dict[str, float]) -> None:
    for seed, least in product(SEEDS, (None, LEAST)):
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


SLOW_LEAF = {node: 0.2 for node, leaf in LEAVES.items() if leaf == "s1"}
SLOW_FLEET = dict.fromkeys(names(8), 0.8)


def across(a: str, b: str, _: str | None) -> float:
    """Only the path between both leaves is slow."""
    return 25.0 if LEAVES[a] == LEAVES[b] else 5.0


@cases(
    ("rate", "note", "accused"),
    [
        (slower(SLOW_LEAF), "pass --limit", [("uplink", "s1")]),
        (across, "pass --limit", [("uplink", "s1-s2")]),
        (slower(SLOW_FLEET), "", [("node", node) for node in names(8)]),
    ],
)
def test_what_is_slow_as_a_whole_needs_a_limit(
    rate: Rate, note: str, accused: list[tuple[str, str]]
) -> None:
    rows = measured(eight(1), rate, gaussian(1))
    relative = found(rows, LEAVES)
    assert relative.accused == ()
    assert not note or any(note in text for text in relative.notes)
    analysis = found(rows, LEAVES, LEAST)
    assert ids(analysis) == accused
    if accused == [("uplink", "s1")]:
        assert analysis.accused[0].nodes == ("n1", "n2", "n3", "n4")
        # Without the switches its nodes are all there is.
        assert ids(found(rows, None, LEAST)) == [("node", f"n{n}") for n in range(1, 5)]
    assert note or "common" in analysis.accused[0].evidence


@cases("least", [None, LEAST])
def test_the_uplinks_of_one_leaf_of_four(least: float | None) -> None:
    leaves = {node: f"s{n // 4}" for n, node in enumerate(names(16))}

    def rate(a: str, b: str, _: str | None) -> float:
        return 10.0 if leaves[a] != leaves[b] and "s2" in (leaves[a], leaves[b]) else 25.0

    rows = planned_rows(leaves, 8)
    assert ids(found(measured(rows, rate, gaussian(2)), leaves, least)) == [("uplink", "s2")]


@cases(
    "disturbed",
    [{}, {"n1-n2": 0.75}, {"n5-n6": 0.75}, {"n1-n2": 0.85, "n3-n4": 0.85}, {"n1-n2": 0.7}],
)
def test_the_uplinks_of_a_leaf_of_two(disturbed: dict[str, float]) -> None:
    """Whose only inner pair, or that of another leaf, was disturbed."""
    leaves = {node: f"s{n // 2}" for n, node in enumerate(names(8))}

    def rate(a: str, b: str, _: str | None) -> float:
        if leaves[a] == leaves[b]:
            return 25.0 * disturbed.get("-".join(sorted((a, b))), 1.0)
        return 9.0 if "s0" in (leaves[a], leaves[b]) else 25.0

    rows = planned_rows(leaves, 7)
    assert ids(found(measured(rows, rate, gaussian(3)), leaves)) == [("uplink", "s0")]


@cases("share", [0.2, 0.3, 0.5, 0.7, 0.8])
def test_two_kinds_of_nodes_are_not_accused_without_a_limit(share: float) -> None:
    nodes = names(120)
    slow = dict.fromkeys(nodes[: int(share * len(nodes))], 0.5)
    pairs = list(matchings(nodes, 8, seeded(1)))
    rows = measured(pairs, slower(slow), gaussian(1))
    analysis = found(rows)
    assert analysis.accused == ()
    assert any("a different kind" in note for note in analysis.notes)
    # With a limit, nodes that only met slow ones are decided in the second pass.
    noise = gaussian(2)
    rows += measured(again(found(rows, None, LEAST)), slower(slow), noise)
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
    second = found([*rows, *measured(again(first), rate, noise)])
    assert ids(second) == [("link", "n2-n7")]
    assert "in 5 readings, while both nodes reach" in second.accused[0].evidence
    # A link that was slow once, and then is well, is not accused and not suspected.
    well = found([*rows, *measured(again(first), slower({}), noise)])
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
            rows += measured(again(found(rows)), rate, noise)
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


def test_suspects_meet_good_nodes_of_their_leaf() -> None:
    leaves = {node: f"s{n // 8}" for n, node in enumerate(names(64))}
    slow = slower({"n9": 0.5, "n20": 0.5})
    analysis = found(measured(planned_rows(leaves, 2), slow, gaussian(1)), leaves)
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
    nodes = names(256)
    leaves = {node: f"s{n // 16}" for n, node in enumerate(nodes)}
    for seed in (1, 2):
        draw = seeded(seed)
        slow = dict.fromkeys(draw.sample(nodes, bad), 0.8)
        disturb = noise(draw, leaves)
        rows = measured(planned_rows(leaves, 8, seed), slower(slow), disturb)
        rows = [row for row in rows if draw.random() >= missing]
        more = measured(again(found(rows, leaves)), slower(slow), disturb)
        second = found([*rows, *more], leaves)
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


def test_what_failed_once_is_listed_with_its_nic_or_node() -> None:
    rows = measured(eight(6), nic({}), gaussian(6), ("x0", "x1"))
    for row in rows:
        if row["nic"] == "x1" and "n2" in (row["a"], row["b"]):
            row.update(gb_per_s=-1.0)
    assert found(rows).unmeasured == ("n2/x1",)
    rows = measured(eight(6), slower({}), gaussian(6))
    rows[3].update(b=None, gb_per_s=None, state="dead")
    assert found(rows).unmeasured == (rows[3]["a"],)
    # A node that failed once, and has one reading, is measured.
    rows = [row for row in measured(eight(6), slower({}), gaussian(6)) if row["round"] <= 2]
    rows[0].update(gb_per_s=None, state="error")
    assert set(found(rows).unmeasured).isdisjoint({rows[0]["a"], rows[0]["b"]})
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


@cases("arrived", [(20.0, 25.0), (25.0, 20.0), (20.0, 20.0), (0.0, 20.0), (math.nan, 1.0), None])
def test_the_direction_of_a_fault_is_named(arrived: tuple[float, float] | None) -> None:
    """`arrived` is what reached n3 and its partner."""
    slow = arrived and 0 < min(arrived) < max(arrived)
    direction = ("receiving" if arrived < arrived[::-1] else "sending") if arrived and slow else ""
    rows = measured(eight(1), slower({"n3": 0.8}), gaussian(1))
    for row in rows:
        if "n3" in (row["a"], row["b"]):
            row["arrived"] = arrived[::-1] if arrived and row["b"] == "n3" else arrived
    (one,) = found(rows, LEAVES).accused
    assert (one.id, one.direction) == ("n3", direction)
    assert one.evidence.startswith("only ") == bool(direction)


@cases(
    ("arrived", "direction"),
    [((12.0, 25.0), "receiving"), ((12.0, 14.0), ""), ((12.0, 19.0), "receiving"), ((22, 24), "")],
)
def test_a_node_that_is_slow_both_ways_has_no_direction(
    arrived: tuple[float, float], direction: str
) -> None:
    """However much its two rates differ by noise; its partner is fast with others."""
    rows = measured(eight(1), slower({"n3": min(arrived) / 25}), gaussian(1))
    for row in rows:
        row["arrived"] = (25.0, 25.0)
        if "n3" in (row["a"], row["b"]):
            row["arrived"] = arrived[::-1] if row["b"] == "n3" else arrived
    (one,) = found(rows, LEAVES).accused
    assert (one.id, one.direction) == ("n3", direction)


def test_pairs_across_leaves_may_be_slower() -> None:
    leaves = {node: f"s{n // 16}" for n, node in enumerate(names(128))}
    factors = slower({"n100": 0.8})

    def rate(a: str, b: str, name: str | None) -> float:
        return factors(a, b, name) * (1 if leaves[a] == leaves[b] else 0.5)

    for known in (leaves, None):
        rows = measured(planned_rows(leaves, 8), rate, gaussian(1))
        assert ids(found(rows, known)) == [("node", "n100")]


@cases("least", [None, LEAST])
def test_leaves_that_share_uplinks_alike_are_not_accused(least: float | None) -> None:
    leaves = {node: f"s{n // 16}" for n, node in enumerate(names(128))}
    for share, count in ((0.5, 0), (0.3, 0), (0.1, 8 if least else 0)):

        def rate(a: str, b: str, _: str | None, share: float = share) -> float:
            return 25.0 if leaves[a] == leaves[b] else 25.0 * share

        rows = measured(planned_rows(leaves, 8), rate, gaussian(1))
        accused = [one.kind for one in found(rows, leaves, least).accused]
        assert (share, accused) == (share, ["uplink"] * count)


def test_nodes_of_an_older_leaf_are_compared_with_each_other() -> None:
    leaves = {node: f"s{n // 16}" for n, node in enumerate(names(128))}
    older = {node: 0.8 for node, leaf in leaves.items() if leaf in ("s1", "s4")}
    for seed in SEEDS:
        noise = gaussian(seed)
        rate = slower(older | {"n100": 0.8, "n20": 0.64})
        rows = measured(planned_rows(leaves, 8, seed), rate, noise)
        rows += measured(again(found(rows, leaves)), rate, noise)
        analysis = found(rows, leaves)
        assert (seed, ids(analysis)) == (seed, [("node", "n100"), ("node", "n20")])
        assert any("a different kind" in note for note in analysis.notes)


def test_older_nodes_on_all_leaves_hide_no_fault_if_slurm_knows_them() -> None:
    """A newer node that is as slow as an older one, and an older one that is slow."""
    leaves = {node: f"s{n // 16}" for n, node in enumerate(names(128))}
    kinds = {node: "older" if n % 4 == 3 else "newer" for n, node in enumerate(names(128))}
    rate = slower({node: 0.8 for node in kinds if kinds[node] == "older"} | {"n101": 0.78})
    named = []
    for seed, known in product(SEEDS, (kinds, None)):
        noise = gaussian(seed)
        rows = measured(planned_rows(leaves, 8, seed), rate, noise)
        for _ in range(2):
            rows += measured(again(found(rows, leaves, kinds=known)), rate, noise)
        accused = ids(found(rows, leaves, kinds=known))
        named += accused if known else []
        assert known or (seed, accused) == (seed, [])
    assert {*named} == {("node", "n101")}
    assert len(named) > len(SEEDS) / 2


@cases(("suspects", "with_good"), [(4, 8), (5, 4)])
def test_few_good_nodes_of_a_leaf_do_not_hold_up_its_suspects(
    suspects: int, with_good: int
) -> None:
    """Four meet the two good ones; five meet any of their leaf, as uplinks may hide the others."""
    good = range(suspects, suspects + 12)
    pairs = list(pairs_of_suspects(range(suspects), good, [0] * (suspects + 2) + [1] * 10, []))
    near = [pair for pair in pairs if max(pair) < suspects + 2]
    assert sum(not {*pair}.isdisjoint(good[:2]) for pair in pairs) == with_good
    assert all(sum(one in pair for pair in near) >= 2 for one in range(suspects))
