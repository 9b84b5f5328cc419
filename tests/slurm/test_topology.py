# SPDX-License-Identifier: MIT
"""Lists of nodes, and the leaves in Slurm's topology files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from busbar.errors import BusbarError
from busbar.slurm.hostlist import expand, fold
from busbar.slurm.nodes import Hardware
from busbar.slurm.topology import kinds_in, leaf_switches_in, read_topology
from tests.cases import cases

TREE = {"a1": "s1", "a2": "s1", "b1": "s2", "b3": "s2"}
BLOCK = {"n1": "b1", "n2": "b1", "n3": "b2"}
FILES = {
    "tree.conf": (
        "# comment\nSwitchName=s1 Nodes=a[1-2] LinkSpeed=100\n"
        "switchname=s2 NODES=b1,b3 # other\nSwitchName=top Switches=s[1-2]\n",
        TREE,
    ),
    "continued.conf": ("SwitchName=s1 \\\n  Nodes=a[1-2]\nSwitchName=s2 Nodes=b[1,3]", TREE),
    "block.conf": ("BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2,4\n", BLOCK),
    "twice.conf": ("SwitchName=s1 Nodes=a[1-2]\nSwitchName=s2 Nodes=a2,b[1,3]", TREE),
    "tree.yaml": (
        "- topology: flat\n  flat: true\n"
        "- topology: t\n  tree:\n    switches:\n"
        "    - {switch: top, children: 's[1-2]'}\n"
        "    - {switch: s1, nodes: 'a[1-2]'}\n    - {switch: s2, nodes: 'b[1,3]'}\n",
        TREE,
    ),
    "default.yaml": (
        "- topology: other\n  tree: {switches: [{switch: x, nodes: y}]}\n"
        "- topology: t\n  cluster_default: true\n  block:\n    block_sizes: [2]\n"
        "    blocks:\n    - {block: b1, nodes: 'n[1-2]'}\n    - {block: b2, nodes: n3}\n",
        BLOCK,
    ),
}


@cases("name", FILES)
def test_leaves(tmp_path: Path, name: str) -> None:
    text, leaves = FILES[name]
    (tmp_path / name).write_text(text)
    assert read_topology(tmp_path / name).leaf_of == leaves


@cases(
    ("name", "text", "message"),
    [
        ("empty.conf", "", "contains no switch"),
        ("spines.conf", "SwitchName=top Switches=s[1-2]", "contains no switch"),
        ("nodes.conf", "\nNodes=a[1-2]", r"conf:2: Nodes without"),
        ("list.conf", "SwitchName=s Nodes=a[1-", r"conf:1: .* is not a list of nodes"),
        ("huge.conf", "SwitchName=s Nodes=a[1-999999999]", "more than 100,000 nodes"),
        ("flat.yaml", "- topology: flat\n  flat: true", "contains no switch"),
        ("word.yaml", "hello", "contains no switch"),
        ("broken.yaml", "- [", "not YAML"),
        ("number.yaml", "- tree: {switches: [{switch: s, nodes: 4}]}", "must have a name"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BusbarError, match=message) as caught:
        read_topology(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@cases(
    ("text", "names"),
    [
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("b,a[2],a[1]", ["a1", "a2", "b"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a1,a1", ["a1"]),
    ],
)
def test_lists_of_slurm(text: str, names: list[str]) -> None:
    assert expand(text, "here") == names
    assert expand(fold(names), "here") == names


@cases(
    "text", ["", "n[", "n]", "n[2-1]", "n[a]", "@all", "n1!n1", "n1&n2", "n*", "n;x", "n[1-4/2]"]
)
def test_what_slurm_refuses(text: str) -> None:
    with pytest.raises(BusbarError, match=r"^here: .*is not a list of nodes"):
        expand(text, "here")


@cases("text", ["n[0-999999999999]", "r[1-9999]n[1-9999]", "a[1-9]" * 40])
def test_a_list_is_bounded_before_it_is_expanded(text: str) -> None:
    with pytest.raises(BusbarError, match="more than 100,000 nodes"):
        expand(text, "here")


def test_only_leaf_switches_and_blocks_of_slurm_count(tmp_path: Path) -> None:
    shown = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]\n"
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[5-8]\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[1-2]\n"
    )
    file = tmp_path / "topology.conf"
    file.write_text(leaf_switches_in(shown))
    assert set(read_topology(file).leaf_of.values()) == {"leaf1", "leaf2"}
    assert not leaf_switches_in("")


def test_kinds_of_hardware_are_kept_beside_the_leaves(tmp_path: Path) -> None:
    nodes = [Hardware(f"n{n}", 8 * (n < 4), ("a",), features="hdr") for n in range(1, 9)]
    file = tmp_path / "topology.conf"
    file.write_text("SwitchName=leaf1 Nodes=n[1-8]\n" + kinds_in(nodes))
    topology = read_topology(file)
    assert {*topology.leaf_of.values()} == {"leaf1"}
    assert topology.kind_of == {f"n{n}": "1" if n < 4 else "2" for n in range(1, 9)}
    assert kinds_in(nodes[:3]) == ""
    file.write_text(kinds_in([nodes[0], replace(nodes[0], name="m", features="ndr")]))
    assert read_topology(file).kind_of == {"n1": "1", "m": "2"}
