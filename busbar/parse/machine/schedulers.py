# SPDX-License-Identifier: MIT
"""Parse ``sinfo``, ``flux resource list`` and ``pbsnodes -a``."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from busbar.parse import numbers

_SLURM_UNUSABLE = ("down", "drain", "drng", "drained", "draining", "fail", "unk", "inval", "maint")
_PBS_UNUSABLE = ("down", "offline", "unknown", "stale", "unresolvable")
_FLUX_LINE = re.compile(
    r"\s*(?P<state>free|allocated|down)\s+(?:(?P<queue>[A-Za-z][\w,.-]*)\s+)?(?P<nodes>\d+)"
    r"\s+(?P<cores>\d+)\s+(?P<gpus>\d+)(?:\s.*)?"
)


@dataclass(frozen=True)
class Queue:
    """A queue or partition with the nodes that it can use."""

    name: str
    """Empty if the scheduler has no queues."""
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
        if not whole or not _closed(words[-1]):
            raise ValueError(f"invalid line {' '.join(words)!r}")
        name = words[name_at].removesuffix("*")
        defaults |= {name} if words[name_at].endswith("*") else set()
        state = words[state_at].lower()
        usable = not state.startswith(_SLURM_UNUSABLE) and not state.endswith("*")
        nodes[name] += numbers.count(words[nodes_at]) if usable else 0
    if not nodes:
        raise ValueError("no partition listed")
    return tuple(Queue(name, count, name in defaults) for name, count in nodes.items())


def _closed(hosts: str) -> bool:
    """Return whether a list of hosts is complete: ``node[1-4`` is not."""
    return hosts.count("[") == hosts.count("]")


def parse_flux(text: str) -> tuple[Queue, ...]:
    """Parse the nodes of each queue, or of all if the version prints no queue."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or lines[0].split()[:1] != ["STATE"] or "NNODES" not in lines[0]:
        raise ValueError("no columns STATE and NNODES")
    nodes: Counter[str] = Counter()
    for line in lines[1:]:
        match = _FLUX_LINE.fullmatch(line)
        if not match or not _closed(line):
            raise ValueError(f"invalid line {line.strip()!r}")
        for queue in (match["queue"] or "").split(","):
            usable = match["state"] != "down"
            nodes[queue] += numbers.count(match["nodes"]) if usable else 0
    if not nodes:
        raise ValueError("no state listed")
    if len(nodes) > 1 and not nodes[""]:
        del nodes[""]
    return tuple(Queue(name, count) for name, count in nodes.items())


@dataclass(frozen=True)
class PbsNodes:
    """The nodes of PBS or Torque."""

    torque: bool
    queues: tuple[Queue, ...]


def parse_pbsnodes(text: str) -> PbsNodes:
    """Parse all nodes: a name at the beginning of a line, indented facts below."""
    nodes: Counter[str] = Counter()
    torque = False
    parts = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    for part in (part for part in parts if part.strip()):
        found = re.findall(r"^[ \t]+(?P<key>[\w.]+) = (?P<value>.*)$", part, flags=re.MULTILINE)
        facts = {key: value.strip() for key, value in found}
        if "state" not in facts or " " in part.splitlines()[0].strip():
            raise ValueError(f"node {part.splitlines()[0].strip()[:40]!r} has no state")
        torque = torque or "np" in facts
        usable = not any(state in facts["state"] for state in _PBS_UNUSABLE)
        nodes[facts.get("queue", "")] += usable
    if not nodes:
        raise ValueError("no node listed")
    return PbsNodes(torque, tuple(Queue(name, count) for name, count in nodes.items()))
