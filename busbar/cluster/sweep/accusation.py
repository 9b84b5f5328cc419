# SPDX-License-Identifier: MIT
"""What a sweep accuses, and of what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from busbar.parse.port_counters import Direction

Kind = Literal["node", "nic", "port", "link", "uplink"]
Fault = Literal["slow", "loss", "flap", "errors"]

WORDS: dict[Fault, str] = {
    "slow": "slow",
    "loss": "losing packets",
    "flap": "down at times",
    "errors": "damaging packets",
}
"""What a thing with a fault is."""


@dataclass(frozen=True)
class Accusation:
    """Something that a sweep proves slow, or at fault in another way."""

    id: str
    """``NODE``, ``NODE/NIC``, ``NODE/PORT``, ``NODE-NODE`` (a link), the name of a leaf switch
    (its uplinks), or ``LEAF-LEAF`` (the only path between leaves)."""
    kind: Kind
    """What it is; docs/sweep-method.md explains each."""
    evidence: str
    """The readings that prove it, in one sentence."""
    nodes: tuple[str, ...] = ()
    """The nodes whose jobs it slows down."""
    direction: Direction = ""
    """The only slow direction, as far as the readings tell."""
    fault: Fault = "slow"
    """What is wrong: it is slow, loses packets, was down, or has damaged packets."""

    @property
    def node(self) -> str:
        """A node to test by itself."""
        return next(iter(self.nodes), self.id)
