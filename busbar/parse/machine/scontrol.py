# SPDX-License-Identifier: MIT
"""Parse ``scontrol show node``, with or without ``--oneliner``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from busbar.parse import numbers


@dataclass(frozen=True)
class SlurmNode:
    """One node of Slurm."""

    cpus: int
    partitions: tuple[str, ...]


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Parse all nodes; raise ``ValueError`` if there are none, or one has no CPU count."""
    nodes: list[SlurmNode] = []
    for part in re.split(r"(?=\bNodeName=)", text)[1:]:
        name = _value(part, "NodeName")
        cpus = _value(part, "CPUTot")
        if not name or not cpus:
            raise ValueError(f"node {name or '?'} has no CPUTot")
        partitions = tuple(p for p in _value(part, "Partitions").split(",") if p)
        nodes.append(SlurmNode(numbers.count(cpus), partitions))
    if not nodes:
        raise ValueError("no node listed")
    return tuple(nodes)


def _value(part: str, key: str) -> str:
    match = re.search(rf"(?:^|\s){key}=(?P<value>\S*)", part)
    return "" if not match or match["value"] == "(null)" else match["value"]
