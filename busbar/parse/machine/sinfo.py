# SPDX-License-Identifier: MIT
"""Parse ``sinfo --Node`` with a format of our own: the state of each node, and its reason."""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = "--format=%N|%T|%E"
"""The option of ``sinfo``."""
_UNUSABLE = ("down", "drain", "drng", "fail", "unk", "inval", "err", "no_respond", "power_down")


@dataclass(frozen=True)
class Node:
    """A node of Slurm."""

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
