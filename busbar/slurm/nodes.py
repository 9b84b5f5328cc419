# SPDX-License-Identifier: MIT
"""The nodes of Slurm: their state from ``sinfo``, their hardware from ``scontrol show node``."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from busbar.errors import BusbarError
from busbar.parse import numbers
from busbar.site.model import Site
from busbar.slurm.hostlist import expand

FORMAT = "--format=%N|%T|%E"
"""The option of ``sinfo --Node`` for :func:`parse_nodes`."""
_UNUSABLE = ("down", "drain", "drng", "fail", "unk", "inval", "err", "no_respond", "power_down")


_NOT_IN_SERVICE = ("down", "drain", "drng", "drained", "draining", "fail", "unk", "inval", "maint")
"""States in the default format of ``sinfo``, which shortens them."""


@dataclass(frozen=True)
class Node:
    """A node and its state."""

    name: str
    state: str
    """In lower case, as ``sinfo`` prints it: ``idle``, ``drained``, ``down*``."""
    reason: str = ""
    """What the administrator or Slurm gave as the reason of the state."""

    @property
    def usable(self) -> bool:
        """Whether Slurm would start a job on it, now or later."""
        return not self.state.startswith(_UNUSABLE) and not self.state.endswith("*")

    @property
    def described(self) -> str:
        """``n3 drained (bad fan)``."""
        return f"{self.name} {self.state}{f' ({self.reason})' if self.reason else ''}"


def parse_nodes(text: str) -> tuple[Node, ...]:
    """Parse one line per node; a reason may contain anything."""
    nodes: dict[str, Node] = {}
    for line in text.splitlines():
        name, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if name and state:
            reason = "" if reason.strip().lower() == "none" else reason.strip()
            nodes[name] = Node(name, state.lower(), reason)
    return tuple(nodes.values())


@dataclass(frozen=True)
class Queue:
    """A partition with the nodes that it can use."""

    name: str
    nodes: int
    default: bool = False


def parse_sinfo(text: str) -> tuple[Queue, ...]:
    """Parse the partitions of ``sinfo`` in its default format."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    head = lines[0] if lines else []
    if not {"PARTITION", "NODES", "STATE"} <= set(head):
        raise ValueError("no columns PARTITION, NODES and STATE")
    name_at, nodes_at, state_at = (head.index(key) for key in ("PARTITION", "NODES", "STATE"))
    nodes: Counter[str] = Counter()
    defaults = set()
    for words in lines[1:]:
        whole = len(words) > max(name_at, nodes_at, state_at) and numbers.is_whole(words[nodes_at])
        # A list of hosts that was cut: ``node[1-4``.
        if not whole or words[-1].count("[") != words[-1].count("]"):
            raise ValueError(f"invalid line {' '.join(words)!r}")
        name = words[name_at].removesuffix("*")
        defaults |= {name} if words[name_at].endswith("*") else set()
        state = words[state_at].lower()
        usable = not state.startswith(_NOT_IN_SERVICE) and not state.endswith("*")
        nodes[name] += numbers.count(words[nodes_at]) if usable else 0
    if not nodes:
        raise ValueError("no partition listed")
    return tuple(Queue(name, count, name in defaults) for name, count in nodes.items())


@dataclass(frozen=True)
class Hardware:
    """A node and its hardware."""

    name: str
    cpus: int
    partitions: tuple[str, ...]
    sockets: int | None = None
    threads_per_core: int | None = None
    gpus: tuple[tuple[str, int], ...] = ()
    """Type, if it has one, and number of the GPUs in its generic resources."""
    state: str = ""
    """State and flags: ``IDLE+DRAIN``."""
    features: str = ""
    """Those that jobs can request: ``icelake,hdr``."""

    @property
    def kind(self) -> tuple[object, ...]:
        """What nodes of one kind have in common."""
        return self.cpus, self.sockets, self.threads_per_core, *self.gpus

    @property
    def gpu_count(self) -> int:
        """GPUs of all types."""
        return sum(count for _, count in self.gpus)

    @property
    def is_idle(self) -> bool:
        """Whether a job would start on it at once."""
        return self.state in ("IDLE", "IDLE+CLOUD", "IDLE+DYNAMIC_NORM")


def parse_hardware(text: str) -> tuple[Hardware, ...]:
    """Parse all nodes; raise ``ValueError`` if there are none, or a CPU count is missing."""
    nodes: list[Hardware] = []
    for part in re.split(r"(?=\bNodeName=)", text)[1:]:
        name, cpus = value_of(part, "NodeName"), value_of(part, "CPUTot")
        if not name or not cpus:
            raise ValueError(f"node {name or '?'} has no CPUTot")
        nodes.append(
            Hardware(
                name,
                numbers.count(cpus),
                tuple(p for p in value_of(part, "Partitions").split(",") if p),
                numbers.whole(value_of(part, "Sockets")),
                numbers.whole(value_of(part, "ThreadsPerCore")),
                _gpus(value_of(part, "Gres")),
                value_of(part, "State"),
                value_of(part, "AvailableFeatures"),
            )
        )
    if not nodes:
        raise ValueError("no node listed")
    return tuple(nodes)


def _gpus(resources: str) -> tuple[tuple[str, int], ...]:
    """Return the GPUs in ``gpu:h200:4(S:0-1),gpu:a100:2,nvme:1``."""
    found = re.finditer(r"(?:^|,)gpu(?::(?P<type>[^:,()]+))?:(?P<count>\d+)", resources)
    return tuple((match["type"] or "", numbers.count(match["count"])) for match in found)


def describing(host: str) -> dict[str, tuple[str, ...]]:
    """Return the commands that describe a host to ``busbar site detect``, by tool."""
    return {
        "sinfo": ("sinfo", "-o", "%P %a %l %D %t %N"),
        "scontrol": ("scontrol", "show", "node", host),
    }


def value_of(text: str, key: str) -> str:
    """Return the value of a key in a line of ``scontrol show``; empty if Slurm has none."""
    match = re.search(rf"(?:^|\s){key}=(?P<value>\S*)", text)
    return "" if not match or match["value"] in ("(null)", "None") else match["value"]


def partition_by_node(site: Site) -> dict[str, str]:
    """Return the partition of each node that a site lists.

    Raises ``BusbarError`` for an invalid list, or a node in the lists of two partitions.
    """
    found: dict[str, str] = {}
    for partition in site.partitions:
        where = f"nodelist of partition {partition.name}"
        for node in expand(partition.nodelist, where) if partition.nodelist else ():
            if node in found:
                what = f"{node} is in the nodelist of partition {found[node]}, too"
                raise BusbarError(what, where=where, hint="list each node once")
            found[node] = partition.name
    return found
