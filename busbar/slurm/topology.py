# SPDX-License-Identifier: MIT
"""The switches of a fleet, from Slurm's ``topology.conf`` or ``topology.yaml``.

Only the lowest level counts: the leaf switch of a node, or its block. Nodes of one leaf reach each
other without an uplink. Lines such as ``Kind=older Nodes=n[1-40]`` add kinds of hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from busbar.boundary import read_text
from busbar.parse.tables import refused
from busbar.slurm.hostlist import expand, fold
from busbar.slurm.nodes import Hardware
from busbar.words import grouped

_MOST_BYTES = 1 << 26
_WORD = re.compile(r"(?<![A-Za-z])(?P<key>[A-Za-z]++)=(?P<value>\S+)")
_LEAF = re.compile(r"(?:SwitchName=\S+ Level=0|BlockName=\S+) .*\bNodes=[^(\s]")
_KIND = re.compile(r"^Kind=(?P<kind>\S+) Nodes=(?P<nodes>\S+)$", re.MULTILINE)
"""Of Busbar: Slurm's file has no such line."""


@dataclass(frozen=True)
class SwitchTopology:
    """Which leaf each node is on."""

    leaf_of: Mapping[str, str] = field(default_factory=dict)
    """Name of the leaf switch or block by node; a node that is not in it is on no known leaf."""
    kind_of: Mapping[str, str] = field(default_factory=dict)
    """Kind of hardware by node, such as an older generation, if known."""


def leaf_switches_in(text: str) -> str:
    """Return the lines of ``scontrol show topology`` for leaf switches and blocks."""
    return "".join(f"{line}\n" for line in text.splitlines() if _LEAF.match(line.strip()))


def kinds_in(nodes: Iterable[Hardware]) -> str:
    """Return a line of `Kind` and `Nodes` for each kind of nodes; none if all are alike."""
    kinds = grouped(((*node.kind, node.features), node.name) for node in nodes)
    lines = [f"Kind={n} Nodes={fold(names)}\n" for n, names in enumerate(kinds.values(), 1)]
    return "".join(lines) if len(lines) > 1 else ""


def read_topology(path: Path) -> SwitchTopology:
    """Read a file of Slurm; raise ``BusbarError`` for one that names no leaf with nodes."""
    try:
        text = read_text(path, _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "is not a text file"
        raise refused(__file__, "wrong", path, what=what) from error
    is_yaml = path.suffix in (".yaml", ".yml")
    kinds = [(match["kind"], match["nodes"]) for match in _KIND.finditer(text)]
    kind_of = {node: kind for kind, nodes in kinds for node in expand(nodes, str(path))}
    text = _KIND.sub("", text)
    leaf_of: dict[str, str] = {}
    for leaf, nodes, where in _of_yaml(text, path) if is_yaml else _of_conf(text, path):
        for node in expand(nodes, where):
            # A node with several NICs may be on several leaves; the first one stands for it.
            leaf_of.setdefault(node, leaf)
    if not (leaf_of or kind_of):
        raise refused(__file__, "no-nodes", path)
    return SwitchTopology(leaf_of, kind_of)


def _of_conf(text: str, path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, nodes and place of each leaf switch or block of a ``topology.conf``."""
    start, joined = 0, ""
    for number, line in enumerate([*text.split("\n"), ""], 1):
        part = line.partition("#")[0].rstrip()
        start = start if joined else number
        if part.endswith("\\"):
            joined += part.removesuffix("\\") + " "
            continue
        words = {match["key"].lower(): match["value"] for match in _WORD.finditer(joined + part)}
        where, joined = f"{path}:{start}", ""
        name = words.get("switchname") or words.get("blockname")
        if name and "nodes" in words:
            yield name, words["nodes"], where
        elif "nodes" in words:
            raise refused(__file__, "no-name", where)


def _of_yaml(text: str, path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, nodes and place of each leaf switch or block of a ``topology.yaml``.

    Of several topologies the one with ``cluster_default`` counts, else the first with leaves.
    """
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        what = f"not YAML: {' '.join(str(error).split())[:120]}"
        raise refused(__file__, "wrong", path, what=what) from error
    topologies = [one for one in _list(document) if _list(_leaves(one))]
    topologies.sort(key=lambda one: one.get("cluster_default") is not True)
    for leaf in _list(_leaves(topologies[0])) if topologies else ():
        if not isinstance(leaf, dict) or "nodes" not in leaf:
            continue  # a switch of switches
        name, nodes = leaf.get("switch") or leaf.get("block"), leaf["nodes"]
        if not isinstance(name, str) or not isinstance(nodes, str):
            raise refused(__file__, "no-text", path)
        yield name, nodes, f"{path}: {name}"


def _leaves(topology: Any) -> Any:
    if not isinstance(topology, dict):
        return None
    for kind, children in (("tree", "switches"), ("block", "blocks")):
        if isinstance(topology.get(kind), dict):
            return topology[kind].get(children)
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
