# SPDX-License-Identifier: MIT
"""Accusations: the part that a sweep found faulty, and the fault."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from busbar.document import Contradictions
from busbar.parse.port_counters import Direction
from busbar.parse.tables import beside
from busbar.words import grouped, names_text, repeated

Kind = Literal["node", "nic", "port", "link", "uplink"]
Fault = Literal["slow", "loss", "flap", "errors"]

WORDS: Mapping[Fault, str] = beside(__file__)
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
    """The only direction in which readings are slow."""
    fault: Fault = "slow"
    """What is wrong: it is slow, loses packets, was down, or has damaged packets."""

    @property
    def node(self) -> str:
        """A node to test alone."""
        return next(iter(self.nodes), self.id)


def nodes_of(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the nodes of ``NODE``, ``NODE/NIC`` or ``NODE-NODE``; names can contain hyphens.

    A name that is not known is returned as one node.
    """
    name = name.partition("/")[0]
    cuts = ((name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "-")
    pairs = (ends for ends in cuts if {*ends} <= {*known})
    return (name,) if name in known else next(pairs, (name,))


def accused_twice(accused: Sequence[Accusation]) -> Contradictions:
    """Yield the key of each accusation that is listed twice."""
    for at in repeated((one.id, one.kind, one.fault, one.direction) for one in accused):
        yield f"accused.{at}", "is listed twice"


def accused_text(accused: Sequence[Accusation]) -> str:
    """Return the faulty part, the fault and its size, for the first sentence."""
    parts = []
    for (fault, kind), those in grouped(((one.fault, one.kind), one) for one in accused).items():
        what = f"{'NIC' if kind == 'nic' else kind}{'s' * (len(those) > 1)}"
        loss = those[0].evidence.partition("; ")[0]
        loss = f"{those[0].id} has {loss}" if those[1:] else loss
        what += f" {names_text([one.id for one in those])} {'are' if those[1:] else 'is'}"
        parts.append(f"{what} {WORDS[fault]}: {loss}")
    return "; ".join(parts)
