# SPDX-License-Identifier: MIT
"""Round 0: what is slow inside a node is named, whatever its partners are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from busbar import site as sites
from busbar.cluster.sweep.analyse import Analysis, analyse
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.limits import inside_of_site
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.rows import MeasuredPair, PairState, Results
from busbar.slurm.topology import SwitchTopology
from tests.cases import cases
from tests.said import Command

NODES = [f"n{n}" for n in range(1, 9)]
LINKS = {"gpu0-host": 50.0, "gpu1-host": 40.0, "gpu2-host": 50.0}
LINKS |= {f"gpu{a}-gpu{b}": 360.0 for a, b in ((0, 1), (0, 2), (1, 2))}


def row(node: str, link: str, rate: float | None, state: PairState = PairState.OK) -> MeasuredPair:
    return MeasuredPair(0, node, node, link, rate, state)


def fleet(slow: Iterable[str] = (), share: float = 0.5, readings: int = 3) -> list[MeasuredPair]:
    """Rows of eight nodes that differ by up to 1 %; ``slow`` has ``n3/gpu0-gpu1``."""
    return [
        row(node, link, rate * (1 + n / 800) * (share if f"{node}/{link}" in slow else 1))
        for n, node in enumerate(NODES)
        for link, rate in LINKS.items()
        for _ in range(readings)
    ]


def found(rows: list[MeasuredPair], **least: Least) -> Analysis:
    return analyse(Results(tuple(rows)), SwitchTopology(), dict(least))


def accused(analysis: Analysis) -> list[tuple[str, str]]:
    return [(one.kind, one.id) for one in analysis.accused]


def of(node: str, *links: str) -> set[str]:
    return {f"{node}/{link}" for link in links}


@cases(
    ("slow", "expected"),
    [
        (set(), []),
        (of("n3", "gpu0-gpu1"), [("link", "n3/gpu0-gpu1")]),
        (of("n3", "gpu1-host"), [("link", "n3/gpu1-host")]),
        (of("n8", "gpu1-host", "gpu0-gpu1", "gpu1-gpu2"), [("link", "n8/gpu1")]),
        (of("n1", *LINKS), [("node", "n1")]),
        (
            of("n2", "gpu0-host") | of("n7", "gpu2-host"),
            [("link", "n2/gpu0-host"), ("link", "n7/gpu2-host")],
        ),
    ],
)
def test_the_slow_part_is_named_and_nothing_else(
    slow: set[str], expected: list[tuple[str, str]]
) -> None:
    analysis = found(fleet(slow))
    assert accused(analysis) == expected
    assert all(one.nodes == (one.id.partition("/")[0],) for one in analysis.accused)
    assert (analysis.suspects, analysis.unmeasured) == ((), ())


def test_one_slow_reading_accuses_nobody_and_the_node_is_measured_again() -> None:
    slow = of("n3", "gpu0-gpu1")
    analysis = found(fleet(slow, readings=1))
    assert accused(analysis) == []
    assert [(pair.a, pair.b) for pair in analysis.suspects] == [("n3", "n3")]
    # Other programs make a reading slower, never faster.
    assert found([*fleet(slow, readings=2), row("n3", "gpu0-gpu1", 355.0)]).suspects == ()


def test_the_band_of_a_site_comes_first() -> None:
    """A fleet that is slow as a whole is found, and a fast one with scatter is well."""
    least = {"gpu0-gpu1": Least(400.0, "the band begins at 400 GB/s")}
    assert len(found(fleet(), **least).accused) == 8
    least = {"gpu0-gpu1": Least(100.0, "the band begins at 100 GB/s")}
    assert found(fleet(of("n3", "gpu0-gpu1")), **least).accused == ()


def test_few_nodes_and_many_slow_ones_are_not_accused_without_a_band() -> None:
    three = [each for each in fleet(of("n3", "gpu0-gpu1")) if each.a in ("n1", "n2", "n3")]
    assert accused(found(three)) == []
    slow = {each for node in NODES[:3] for each in of(node, "gpu0-gpu1")}
    analysis = found(fleet(slow))
    assert accused(analysis) == []
    assert "gpu0-gpu1 is slow in 3 of 8 nodes: none is accused" in analysis.notes


def test_a_core_at_another_clock_is_no_slow_memory() -> None:
    rows = [row(node, "memory", 10.0) for node in NODES for _ in range(3)]
    slower = [row("n3", "memory", 7.0) for _ in range(3)]
    assert found([each for each in rows if each.a != "n3"] + slower).accused == ()
    broken = [row("n3", "memory", 3.0) for _ in range(3)]
    assert accused(found([each for each in rows if each.a != "n3"] + broken)) == [("node", "n3")]


@cases("state", [PairState.TIMEOUT, PairState.WRONG, PairState.DEAD])
def test_what_has_no_rate_is_listed(state: PairState) -> None:
    rows = [each for each in fleet() if (each.a, each.nic) != ("n3", "gpu0-host")]
    analysis = found([*rows, row("n3", "gpu0-host", None, state)])
    assert (accused(analysis), analysis.unmeasured) == ([], ("n3/gpu0-host",))


def test_rows_inside_do_not_change_what_pairs_show() -> None:
    pairs = [
        MeasuredPair(p.round, p.a, p.b, None, 5.0 if "n5" in (p.a, p.b) else 25.0, PairState.OK)
        for p in plan(NODES, SwitchTopology(), 7, 1)
    ]
    both = found([*fleet(of("n3", "gpu0-gpu1")), *pairs])
    assert accused(both) == [("node", "n5"), ("link", "n3/gpu0-gpu1")]
    assert accused(found(pairs)) == [("node", "n5")]


def test_a_site_has_bands_of_its_links() -> None:
    site = sites.load("h200x4")
    bands = inside_of_site(site, [*LINKS, "memory", "gpu9-host", "eth0", "gpu-gpu", None])
    assert set(bands) == set(LINKS)
    assert bands["gpu0-gpu1"].gb_per_s > bands["gpu0-host"].gb_per_s > 10


def test_a_healthy_node_of_two_h200_is_not_accused() -> None:
    """What the program read on one, three times; messages of 4 MiB between the GPUs are slower."""
    bands = inside_of_site(sites.load("h200x4"), LINKS)
    hosts = [row("n1", f"gpu{gpu}-host", 54.6) for gpu in (0, 1) for _ in range(3)]
    whole = [row("n1", "gpu0-gpu1", 370.1) for _ in range(3)]
    short = [row("n1", "gpu0-gpu1", 312.0) for _ in range(3)]
    assert accused(found([*hosts, *whole], **bands)) == []
    assert accused(found([*hosts, *short], **bands)) == [("link", "n1/gpu0-gpu1")]


def test_the_command_reads_them_and_a_second_pass_leaves_them_out(
    tmp_path: Path, busbar: Command
) -> None:
    file, document = tmp_path / "results.jsonl", tmp_path / "first.json"
    file.write_text("".join(each.line() for each in fleet(of("n3", "gpu0-gpu1"), readings=1)))
    said = busbar("sweep analyse --json", file)
    assert (said.status, said.json["suspects"]) == (1, [{"a": "n3", "b": "n3"}])
    document.write_text(said.out)
    said = busbar("sweep plan --suspects", document)
    assert (said.status, said.out) == (0, "")
    file.write_text(row("n3", "gpu0-host", 5.0).line().replace('"round": 0', '"round": 1'))
    busbar.refuses("which only round 0 allows", "sweep analyse", file)
