# SPDX-License-Identifier: MIT
"""``scontrol show node``, in lines or with ``--oneliner``."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class SlurmNode:
    """One node as Slurm has it."""

    name: str
    cpus: int
    gpus: int
    partitions: tuple[str, ...]
    state: str


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Every node; raises ``ValueError`` where none is described or one lacks its CPU count."""
    nodes: list[SlurmNode] = []
    for part in re.split(r"(?=\bNodeName=)", text)[1:]:
        name = _value(part, "NodeName")
        cpus = _value(part, "CPUTot")
        if not name or not cpus:
            raise ValueError(f"node {name or '?'} has no CPUTot")
        partitions = tuple(p for p in _value(part, "Partitions").split(",") if p)
        gres = _value(part, "Gres")
        # gpu:4, gpu:h200:4(S:0-1), with other resources beside it
        counts = re.findall(r"(?:^|,)gpu(?::[A-Za-z][\w-]*)?:(?P<count>\d+)", gres)
        gpus = sum(int(count) for count in counts)
        nodes.append(SlurmNode(name, int(cpus), gpus, partitions, _value(part, "State")))
    if not nodes:
        raise ValueError("no node is described")
    return tuple(nodes)


def _value(part: str, key: str) -> str:
    field = re.search(rf"(?:^|\s){key}=(?P<value>\S*)", part)
    return "" if not field or field["value"] == "(null)" else field["value"]
