# SPDX-License-Identifier: MIT
"""The map of a sweep: only a node with a reading that nothing speaks against is a pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from busbar.cluster.sweep.document import read_sweep
from busbar.errors import BusbarError
from busbar.report.headline import of_sweep
from busbar.report.sweep import map_of, read_rates
from busbar.verdict import Verdict
from tests.cases import cases
from tests.said import Command


def files(tmp_path: Path, nodes: int = 12, **verdict: Any) -> tuple[Path, Path]:
    """A verdict, and rows in which every node has a reading but ``gpu-a3``."""
    rows = []
    for turn in (1, 2):
        for n in range(nodes):
            a, b = f"gpu-a{n}", f"gpu-a{(n + turn) % nodes}"
            dead = "gpu-a3" in (a, b)
            rate = {"gb_per_s": None if dead else 46.0, "state": "dead" if dead else "ok"}
            rows.append({"round": turn, "a": a, "b": b, "nic": None, **rate})
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "rows.jsonl").write_text(f'{lines}{{"round": 3, "a": "gp')
    document = {
        "schema": "busbar-sweep/1",
        "accused": [{"id": "gpu-a5/mlx5_0", "kind": "nic", "evidence": "23 of 46 GB/s"}],
        "suspects": [{"a": "gpu-a7", "b": "gpu-a8"}],
        "unmeasured": ["gpu-a3", "gpu-a3-gpu-a4"],
        "notes": ["1 line was cut off"],
        **verdict,
    }
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    return tmp_path / "sweep.json", tmp_path / "rows.jsonl"


def test_states_by_leaf(tmp_path: Path) -> None:
    verdict, rows = files(tmp_path)
    leaf_of = {f"gpu-a{n}": "left" if n < 6 else "right" for n in range(12)}
    drawn = map_of(read_sweep(verdict), read_rates(rows), leaf_of)
    assert [(leaf.name, len(leaf.nodes)) for leaf in drawn.leaves] == [("left", 6), ("right", 6)]
    states = {node.name: node.verdict for leaf in drawn.leaves for node in leaf.nodes}
    bad = {name: state for name, state in states.items() if state is not Verdict.PASS}
    assert bad == {
        "gpu-a3": Verdict.NOT_RUN,
        "gpu-a5": Verdict.DEGRADED,
        "gpu-a7": Verdict.UNKNOWN,
    }
    assert [node.name for node in drawn.leaves[1].nodes][-2:] == ["gpu-a10", "gpu-a11"]
    assert of_sweep(drawn) == (
        "NIC gpu-a5/mlx5_0 is slow: 23 of 46 GB/s; gpu-a7 is undecided; gpu-a3 was not measured;"
        " 12 nodes in all"
    )


def test_an_uplink_is_named_before_the_nodes_behind_it(tmp_path: Path) -> None:
    behind = ["gpu-a5", "gpu-a6"]
    uplink = {"id": "leaf3", "kind": "uplink", "evidence": "28 of 47 GB/s; 64 pairs"}
    verdict, rows = files(tmp_path, accused=[{**uplink, "nodes": behind}])
    said = of_sweep(map_of(read_sweep(verdict), read_rates(rows), {}))
    assert said.startswith("uplink leaf3 is slow: 28 of 47 GB/s (2 nodes); ")
    node = {"id": "gpu-a5", "kind": "node", "evidence": "x", "nodes": ["gpu-a5"]}
    verdict, rows = files(tmp_path, accused=[node, {**node, "id": "gpu-a6", "nodes": ["gpu-a6"]}])
    assert "gpu-a5, gpu-a6 are slow" in of_sweep(map_of(read_sweep(verdict), read_rates(rows), {}))


def test_nobody_passes_without_rows(tmp_path: Path) -> None:
    verdict, _ = files(tmp_path, nodes=1)
    drawn = map_of(read_sweep(verdict), {}, {})
    assert not [v for v, _ in drawn.counts if v is Verdict.PASS]


@pytest.fixture(autouse=True)
def no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSBAR_HISTORY", str(tmp_path / "none"))


def test_the_page_of_a_sweep(tmp_path: Path, busbar: Command) -> None:
    verdict, rows = files(tmp_path)
    said = busbar(f"report --mail --sweep {verdict} --rows {rows} --output", tmp_path / "out")
    text = (tmp_path / "out/index.html").read_text()
    assert "nic gpu-a5/mlx5_0: 23 of 46 GB/s" in text
    assert "gpu-a3-gpu-a4</strong>: not measured by the sweep" in text
    assert "1 line was cut off" in text
    assert said.status == 0
    assert said.out.startswith("sweep: degraded: NIC gpu-a5/mlx5_0 is slow")


def test_the_page_of_a_sweep_by_leaf(tmp_path: Path, busbar: Command) -> None:
    verdict, rows = files(tmp_path)
    topology = tmp_path / "topology.conf"
    topology.write_text(
        "SwitchName=left Nodes=gpu-a[0-5]\nSwitchName=right Nodes=gpu-a[6-10]\n"
        "SwitchName=core Switches=left,right\n"
    )
    line = f"report --output {tmp_path / 'out'} --topology {topology}"
    busbar.refuses("--topology: requires --sweep, the results of the sweep", line)
    assert busbar(f"{line} --sweep {verdict} --rows {rows}").status == 0
    text = (tmp_path / "out/index.html").read_text()
    for leaf in ("left <span>6", "right <span>5", "not in the topology <span>1"):
        assert f"<figcaption>{leaf} nodes: " in text
    topology.write_text("")
    busbar.refuses("", f"{line} --sweep {verdict}")


@cases("change", [{"schema": "x"}, {"accused": [1]}, {"unmeasured": None}])
def test_a_file_that_is_no_sweep(change: dict[str, Any], tmp_path: Path) -> None:
    verdict, _ = files(tmp_path, **change)
    with pytest.raises(BusbarError):
        read_sweep(verdict)


def test_what_only_a_limit_can_judge_is_no_pass(tmp_path: Path) -> None:
    document, rows = tmp_path / "sweep.json", tmp_path / "rows.jsonl"
    sweep = {"schema": "busbar-sweep/1", "accused": [], "suspects": [], "unmeasured": []}
    document.write_text(json.dumps(sweep | {"decided": False}))
    rows.write_text('{"round": 1, "a": "n1", "b": "n2", "gb_per_s": 5, "state": "ok"}\n')
    drawn = map_of(read_sweep(document), read_rates(rows), {})
    assert {node.verdict for leaf in drawn.leaves for node in leaf.nodes} == {Verdict.UNJUDGED}
    assert of_sweep(drawn) == "2 nodes were only compared with each other"
