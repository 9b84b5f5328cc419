# SPDX-License-Identifier: MIT
"""The rows of a sweep as columns of numbers, by NIC, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from busbar.cluster.sweep.localise import Pairs
from busbar.cluster.sweep.rows import MeasuredPair
from busbar.slurm.hostlist import natural
from busbar.words import grouped


@dataclass(frozen=True)
class Readings:
    """What a sweep measured: the readings of each NIC, None for all NICs at once."""

    nodes: tuple[str, ...]
    """Every node that a row names, ``n2`` before ``n10``; the numbers of `Pairs` count them."""
    measured: Mapping[str | None, Pairs]
    failed: tuple[MeasuredPair, ...]
    """Rows without a rate, of which no repetition has one either."""
    repeated: int
    """Rows that another row of the same round, pair and NIC replaces."""


def readings(rows: Iterable[MeasuredPair]) -> Readings:
    """Sort the rows; of several for one measurement the last one with a rate counts."""
    names: set[str] = set()
    chosen: dict[tuple[int, str, str, str | None], MeasuredPair] = {}
    repeated = 0
    for row in rows:
        names |= {row.a, row.b} if row.b else {row.a}
        key = (row.round, min(row.a, row.b), max(row.a, row.b), row.nic)
        earlier = chosen.get(key)
        repeated += earlier is not None
        if earlier is None or row.gb_per_s is not None or earlier.gb_per_s is None:
            chosen[key] = row
    by_nic = grouped((row.nic, row) for row in chosen.values() if row.gb_per_s is not None)
    failed = tuple(row for row in chosen.values() if row.gb_per_s is None)
    nodes = sorted(names, key=lambda name: (natural(name), name))
    numbers = {node: number for number, node in enumerate(nodes)}
    return Readings(
        tuple(nodes),
        {nic: _columns(rows, numbers) for nic, rows in by_nic.items()},
        failed,
        repeated,
    )


def _columns(rows: Sequence[MeasuredPair], numbers: Mapping[str, int]) -> Pairs:
    return Pairs(
        count=len(numbers),
        round=np.array([row.round for row in rows]),
        a=np.array([numbers[row.a] for row in rows]),
        b=np.array([numbers[row.b] for row in rows]),
        rate=np.array([math.log(row.gb_per_s or math.nan) for row in rows]),
    )
