# SPDX-License-Identifier: MIT
"""What the pair program prints: one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from busbar.parse import numbers


@dataclass(frozen=True)
class PairStart:
    """A rank before MPI starts."""

    node: str
    rail: int
    step: int
    nonce: str


@dataclass(frozen=True)
class PairRank:
    """A rank that takes orders."""

    rank: int
    node: str
    rail: int
    device: str


@dataclass(frozen=True)
class PairRate:
    """What arrived at one end of a pair in one pass."""

    pass_number: int
    rank: int
    partner: int
    gb_per_s: FiniteFloat
    wrong: int
    """Bytes."""
    lost: str
    """Why the pass did not come to its end; empty if it did."""
    clock_ratio: FiniteFloat = 1
    """Seconds by the clock that gave the rate, per second of the kernel's clock."""
    segments: int = 0
    """What TCP of the node sent in this time, and what of it again."""
    resent: int = 0


@dataclass(frozen=True)
class ProgramError:
    """Why a rank ended."""

    rank: int
    text: str


Event = PairStart | PairRank | PairRate | ProgramError
_NAMES = {"start": PairStart, "rank": PairRank, "pair": PairRate, "error": ProgramError}
_ADAPTERS: dict[str, TypeAdapter[Event]] = {
    name: TypeAdapter(kind) for name, kind in _NAMES.items()
}


def parse_event(line: str) -> Event | None:
    """Return the event of a line; None if it is something else, as MPI prints messages too."""
    if not line.startswith("{"):
        return None
    try:
        value: Any = numbers.load_json(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or str(value.get("event")) not in _ADAPTERS:
        return None
    value = {"pass_number": value.get("pass"), **value}
    try:
        return _ADAPTERS[value["event"]].validate_python(value)
    except ValidationError:
        return None
