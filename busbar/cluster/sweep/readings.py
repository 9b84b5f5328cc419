# SPDX-License-Identifier: MIT
"""The rows of a sweep as columns of numbers, by NIC, and what it could not measure.

In a large sweep some pairs have no rate, and their nodes have others. Only more than that counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from busbar.cluster.sweep.localise import Pairs
from busbar.cluster.sweep.rows import MeasuredPair
from busbar.robust import chance_of_so_many
from busbar.slurm.hostlist import natural
from busbar.words import grouped


@dataclass(frozen=True)
class Readings:
    """What a sweep measured: the readings of each NIC, None for all NICs at once."""

    nodes: tuple[str, ...]
    """Every node that a row names, ``n2`` before ``n10``; the numbers of `Pairs` count them."""
    measured: Mapping[str | None, Pairs]
    failed: tuple[MeasuredPair, ...]
    """Rows without a rate, even in repetitions."""
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
    measured = {nic: _columns(rows, numbers) for nic, rows in by_nic.items()}
    return Readings(tuple(nodes), measured, failed, repeated)


def _columns(rows: Sequence[MeasuredPair], numbers: Mapping[str, int]) -> Pairs:
    return Pairs(
        count=len(numbers),
        round=np.array([row.round for row in rows]),
        a=np.array([numbers[row.a] for row in rows]),
        b=np.array([numbers[row.b] for row in rows]),
        rate=np.array([math.log(row.gb_per_s or math.nan) for row in rows]),
    )


# The constants: value, meaning, and how to see what another value costs.
#   paths   python -m tests.bench.sweep_paths: healthy fleets that miss two readings in a hundred
_MOST_LOST = 0.05  # paths: share of pairs that may fail without a note of each
_CHANCE = 0.05  # paths: chance that any node of a fleet fails so often by itself


def unmeasured(readings: Readings, planned: int | None = None) -> list[str]:
    """Return the ids, in the order of the file.

    A node (``NODE``) or NIC (``NODE/NIC``) is listed if it has no reading, or if it failed at
    least twice, and more often than chance explains, in all or from a round to the last one. If
    three quarters of the nodes have a row of a round up to ``planned``, it failed for a node that
    has none. If more than a few pairs failed otherwise, they are listed: ``A-B`` or
    ``A-B/NIC``.
    """
    failed = grouped((row.nic, row) for row in readings.failed)
    found: dict[str, None] = {}
    for nic in failed.keys() | readings.measured.keys():
        ends = _ends(readings, nic, failed.get(nic, []), planned)
        found |= dict.fromkeys(_id(node, nic) for node in ends)
        others = [row for row in failed.get(nic, ()) if not ends & {row.a, row.b}]
        few = len(others) <= _MOST_LOST * len(readings.measured.get(nic, ()))
        for row in others:
            if not few or not row.b:
                pair = sorted(filter(None, (row.a, row.b)), key=natural)
                found[_id("-".join(pair), nic)] = None
    nowhere = _never(readings)
    listed = [name for name in found if name.partition("/")[0] not in nowhere]
    return [*(node for node in readings.nodes if node in nowhere), *sorted(listed, key=natural)]


def _id(name: str, nic: str | None) -> str:
    return name if nic is None else f"{name}/{nic}"


def _never(readings: Readings) -> set[str]:
    """Return the nodes without any reading."""
    seen = {
        int(end)
        for pairs in readings.measured.values()
        for end in np.unique(np.concatenate([pairs.a, pairs.b]))
    }
    return {node for number, node in enumerate(readings.nodes) if number not in seen}


def _ends(
    readings: Readings, nic: str | None, failed: list[MeasuredPair], planned: int | None
) -> set[str]:
    """Return the nodes to which failures of one NIC are put down."""
    pairs = readings.measured.get(nic)
    count = len(readings.nodes)
    numbers = {node: number for number, node in enumerate(readings.nodes)}
    lost = [(numbers[node], row.round) for row in failed for node in (row.a, row.b) if node]
    bad_ends, bad_rounds = np.array(lost, np.int64).reshape(-1, 2).T
    ends = rounds = np.zeros(0, np.int64)
    if pairs is not None:
        ends, rounds = np.concatenate([pairs.a, pairs.b]), np.tile(pairs.round, 2)
    every, number = np.unique(np.concatenate([rounds, bad_rounds]), return_inverse=True)
    good, bad = (np.zeros((count, len(every)), bool) for _ in range(2))
    good[ends, number[: len(ends)]] = True
    bad[bad_ends, number[len(ends) :]] = True
    full = (good | bad).sum(axis=0) * 4 >= count * 3
    bad |= full & ~good & ((every <= planned) if planned is not None else True)
    times, known = bad.sum(axis=1), good.sum(axis=1)
    first_bad = bad.argmax(axis=1)
    last_good = len(every) - 1 - good[:, ::-1].argmax(axis=1)
    lost = np.maximum(0, times.sum() / 2 - times[known == 0].sum() - times)  # pairs of others
    share = (lost + 1) / (known.sum() / 2 + lost + 1)
    likely = _CHANCE / (count * max(1, len(readings.measured)))
    listed = (times > 0) & (known == 0)
    for end in np.flatnonzero((times > 1) & (known > 0)).tolist():
        fails = int(times[end])
        total = fails if first_bad[end] > last_good[end] else fails + int(known[end])
        listed[end] = chance_of_so_many(fails, total, float(share[end])) < likely
    return {readings.nodes[end] for end in np.flatnonzero(listed).tolist()}
