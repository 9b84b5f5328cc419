# SPDX-License-Identifier: MIT
"""What counters of ports and segments of TCP show, although the rate looks healthy."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from busbar.cluster.measure import run
from busbar.cluster.measure.rounds import resent
from busbar.cluster.measure.run import CounterRead
from busbar.cluster.measure.step import PairRate
from busbar.cluster.sweep.accusation import Accusation
from busbar.cluster.sweep.loss import lossy, with_loss
from busbar.cluster.sweep.plan import plan
from busbar.cluster.sweep.ports import port_faults
from busbar.cluster.sweep.rows import MeasuredPair, PairState, read_results
from busbar.parse.port_counters import counter_of, growth, parse_counters
from busbar.slurm.topology import SwitchTopology
from tests.cases import cases
from tests.files import executable

NODES = [f"n{number}" for number in range(1, 9)]
IB = "/sys/class/infiniband/mlx5_{}/ports/{}/{}"
SYMBOL = IB.format(0, 1, "counters/symbol_error")
DOWN = IB.format(0, 1, "counters/link_downed")
LOST = IB.format(0, 2, "hw_counters/out_of_sequence")
CARRIER = "/sys/class/net/{}/carrier_down_count"
CXI = "/sys/class/cxi/cxi0/device/telemetry/pct_retry_srb_requests"


@pytest.mark.parametrize(
    ("place", "port", "effect", "direction"),
    [
        (SYMBOL, "mlx5_0", "errors", "receiving"),
        (LOST, "mlx5_0/2", "loss", "receiving"),
        (CARRIER.format("eth0"), "eth0", "down", ""),
        (CXI, "cxi0", "loss", "sending"),
        ("ethtool/ens1f0np0/tx_discards_phy", "ens1f0np0", "loss", "sending"),
    ],
)
def test_a_place_names_port_and_meaning(
    place: str, port: str, effect: str, direction: str
) -> None:
    found = counter_of(place)
    assert found
    assert (found[0], found[1].effect, found[1].direction) == (port, effect, direction)


def test_what_is_no_counter_is_left_out() -> None:
    assert counter_of("/sys/class/net/eth0/mtu") is None
    assert counter_of("symbol_error") is None
    assert parse_counters(f"{SYMBOL}=3 {DOWN}=-1 {LOST} x=1e3") == {SYMBOL: 3}


def test_growth_is_what_came_since_and_a_reset_counts_from_zero() -> None:
    assert growth({"a": 5, "b": 2, "c": 9}, {"a": 7, "b": 2, "c": 4, "d": 1}) == {
        "a": 2,
        "c": 4,
        "d": 1,
    }


QUIET = {node: {LOST: 20} for node in NODES}


@cases(
    ("grown", "expected"),
    [
        ({"n1": {DOWN: 1}}, [("n1/mlx5_0", "flap", "")]),
        ({"n1": {CARRIER.format("eth0"): 2}}, [("n1/eth0", "flap", "")]),
        ({"n1": {CARRIER.format("hsn0"): 1}}, [("n1/hsn0", "flap", "")]),
        ({"n1": {CARRIER.format("bmc0"): 2}}, []),
        ({"n1": {SYMBOL: 9}}, []),
        ({"n1": {SYMBOL: 10}}, [("n1/mlx5_0", "errors", "receiving")]),
        (QUIET, []),
        (QUIET | {"n1": {LOST: 99}}, []),
        (QUIET | {"n1": {LOST: 199}}, []),
        (QUIET | {"n1": {LOST: 201}}, [("n1/mlx5_0/2", "loss", "receiving")]),
        ({node: {LOST: 5000} for node in NODES}, []),
        ({"n1": {LOST: 5000}, "n2": {}, "n3": {}}, []),
        (QUIET | {"n1": {CXI: 100}}, [("n1/cxi0", "loss", "sending")]),
        (QUIET | {"n1": {CXI: 99}}, []),
    ],
)
def test_a_port_is_accused_by_what_its_counters_grew(
    grown: dict[str, dict[str, int]], expected: list[tuple[str, str, str]]
) -> None:
    found = port_faults(grown, ("eth0", "cxi0"))
    assert [(one.id, one.fault, one.direction) for one in found] == expected
    assert all(one.kind == "port" and one.nodes == ("n1",) for one in found)


def measured(
    bad: str = "", way: str = "", times: int = 99, base: float = 0.0, rounds: int = 7
) -> list[MeasuredPair]:
    """Return the rows of a sweep of eight nodes, of which one loses 1 % of its packets."""

    def share(number: int, sender: str, receiver: str) -> float:
        lost = (sender if way == "sending" else receiver) == bad and number <= times
        return base + 0.01 * lost

    topology = SwitchTopology({node: f"leaf{at // 2}" for at, node in enumerate(NODES)})
    return [
        MeasuredPair(
            *(row.round, row.a, row.b, None, 0.02, PairState.OK, (0.02, 0.02)),
            (share(row.round, row.a, row.b), share(row.round, row.b, row.a)),
        )
        for row in plan(NODES, topology, rounds, 1)
    ]


@pytest.mark.parametrize("way", ["sending", "receiving"])
@pytest.mark.parametrize("base", [0.0, 0.0007, 0.002])
def test_the_node_that_loses_packets_is_named_with_its_direction(way: str, base: float) -> None:
    found = lossy(measured("n3", way, base=base)).accused
    assert [(one.id, one.fault, one.direction) for one in found] == [("n3", "loss", way)]
    assert "in 7 of 7 readings" in found[0].evidence


def test_a_node_that_loses_packets_at_times_is_measured_again() -> None:
    found = lossy(measured("n4", "receiving", times=2))
    assert not found.accused
    assert found.suspects == {"n4"}


@pytest.mark.parametrize(
    "rows",
    [
        measured(),
        measured(base=0.02),
        measured("n3", "sending", rounds=2),
        [
            MeasuredPair(n, "n1", "n2", None, 1.0, PairState.OK, (1.0, 1.0), (0.02, 0.0))
            for n in range(1, 9)
        ],
    ],
    ids=["none", "all alike", "two partners", "one partner"],
)
def test_what_all_lose_or_one_link_accuses_nobody(rows: Sequence[MeasuredPair]) -> None:
    assert not lossy(rows).accused


def test_two_nodes_that_lose_packets_are_both_named() -> None:
    pairs = zip(measured("n3", "sending"), measured("n6", "receiving"), strict=True)
    rows = [
        MeasuredPair(
            *(a.round, a.a, a.b, None, 0.02, PairState.OK, (0.02, 0.02)),
            (max(a.resent[0], b.resent[0]), max(a.resent[1], b.resent[1])),
        )
        for a, b in pairs
        if a.resent and b.resent
    ]
    found = {(one.id, one.direction) for one in lossy(rows).accused}
    assert found == {("n3", "sending"), ("n6", "receiving")}


def test_a_slow_node_that_loses_packets_is_accused_once_and_its_links_are_not() -> None:
    loss = lossy(measured("n3", "sending")).accused
    accused = [
        Accusation("n3", "node", "half the rate", ("n3",)),
        Accusation("n3-n4", "link", "slow each time", ("n3", "n4")),
        Accusation("n1-n2", "link", "slow each time", ("n1", "n2")),
    ]
    found = with_loss(accused, loss)
    assert [(one.id, one.fault) for one in found] == [("n3", "slow"), ("n1-n2", "slow")]
    assert found[0].evidence.startswith("half the rate; 1.0%")


def test_rows_keep_what_was_sent_again(tmp_path: Path) -> None:
    rates = [[PairRate(1, 0, 1, 1.0, 0, "", segments=1000, resent=10)]]
    rates += [[PairRate(1, 1, 0, 1.0, 0, "", segments=400)]]
    assert resent(rates) == (0.01, 0.0)
    assert resent([[PairRate(1, 0, 1, 1.0, 0, "", segments=10, resent=5)], []]) is None
    row = MeasuredPair(1, "a", "b", None, 1.0, PairState.OK, (1.0, 1.0), (0.01, 0.0))
    (tmp_path / "rows").write_text(row.line())
    assert read_results(tmp_path / "rows").rows == (row,)


def test_counters_are_read_on_all_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that Slurm runs prints one line for its node."""
    each = 'for SLURMD_NODENAME in n1 n2; do export SLURMD_NODENAME; "$@"; done'
    executable(tmp_path / "srun", f'while [ "$1" != sh ]; do shift; done\n{each}')
    counters = "NIC statistics:\\n  link_down_events_phy: 4\\n  rx_bytes: 9\\n"
    executable(tmp_path / "ethtool", f"printf '{counters}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "counter").write_text("17@1690000000.5\n")
    files = f"for file in {tmp_path}/counter {tmp_path}/none; do"
    script, count = re.subn(r"for file in .*; do", files, run._SCRIPT)
    assert count == 1
    monkeypatch.setattr(run, "_SCRIPT", script)
    found = CounterRead(["n1", "n2"]).result()
    assert found.keys() == {"n1", "n2"}
    assert found["n1"][f"{tmp_path}/counter"] == 17
    assert {4} == {each for place, each in found["n1"].items() if place.startswith("ethtool/")}
