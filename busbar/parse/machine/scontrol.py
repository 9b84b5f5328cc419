# SPDX-License-Identifier: MIT
"""Parse ``scontrol show node``, with or without ``--oneliner``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from busbar.parse import numbers


@dataclass(frozen=True)
class SlurmNode:
    """One node of Slurm."""

    name: str
    cpus: int
    partitions: tuple[str, ...]
    sockets: int | None = None
    threads_per_core: int | None = None
    gpus: tuple[tuple[str, int], ...] = ()
    """Type, if it has one, and number of the GPUs in its generic resources."""
    state: str = ""
    """State and flags: ``IDLE+DRAIN``."""

    @property
    def gpu_count(self) -> int:
        """GPUs of all types."""
        return sum(count for _, count in self.gpus)

    @property
    def is_idle(self) -> bool:
        """Whether a job would start on it at once."""
        return self.state in ("IDLE", "IDLE+CLOUD", "IDLE+DYNAMIC_NORM")


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Parse all nodes; raise ``ValueError`` if there are none, or one has no CPU count."""
    nodes: list[SlurmNode] = []
    for part in re.split(r"(?=\bNodeName=)", text)[1:]:
        name = _value(part, "NodeName")
        cpus = _value(part, "CPUTot")
        if not name or not cpus:
            raise ValueError(f"node {name or '?'} has no CPUTot")
        partitions = tuple(p for p in _value(part, "Partitions").split(",") if p)
        nodes.append(
            SlurmNode(
                name,
                numbers.count(cpus),
                partitions,
                numbers.whole(_value(part, "Sockets")),
                numbers.whole(_value(part, "ThreadsPerCore")),
                _gpus(_value(part, "Gres")),
                _value(part, "State"),
            )
        )
    if not nodes:
        raise ValueError("no node listed")
    return tuple(nodes)


def _gpus(resources: str) -> tuple[tuple[str, int], ...]:
    """Return the GPUs in ``gpu:h200:4(S:0-1),gpu:a100:2,nvme:1``."""
    found = re.finditer(r"(?:^|,)gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)", resources)
    return tuple((match["type"] or "", numbers.count(match["count"])) for match in found)


def _value(part: str, key: str) -> str:
    match = re.search(rf"(?:^|\s){key}=(?P<value>\S*)", part)
    return "" if not match or match["value"] == "(null)" else match["value"]
