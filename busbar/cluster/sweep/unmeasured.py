# SPDX-License-Identifier: MIT
"""List what a sweep could not measure: nodes, their NICs, and pairs."""

from __future__ import annotations

import numpy as np

from busbar.cluster.sweep.readings import Readings
from busbar.cluster.sweep.rows import MeasuredPair
from busbar.slurm.hostlist import natural
from busbar.words import grouped


def unmeasured(readings: Readings) -> list[str]:
    """Return the ids, in the order of the file; each failed row is behind one of them.

    A node (``NODE``) or NIC (``NODE/NIC``) is listed if it has no reading, or if it failed at
    least twice and as often as it did not, or from a round to the last. If three quarters of the
    nodes have a row of a round, it failed for a node that has none. Other failures are listed as
    pairs: ``A-B`` or ``A-B/NIC``.
    """
    failed = grouped((row.nic, row) for row in readings.failed)
    found: dict[str, None] = {}
    for nic in failed.keys() | readings.measured.keys():
        ends = _ends(readings, nic, failed.get(nic, []))
        found |= dict.fromkeys(_id(node, nic) for node in ends)
        for row in failed.get(nic, ()):
            if not ends & {row.a, row.b}:
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


def _ends(readings: Readings, nic: str | None, failed: list[MeasuredPair]) -> set[str]:
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
    bad |= full & ~good
    times, known = bad.sum(axis=1), good.sum(axis=1)
    first_bad = bad.argmax(axis=1)
    last_good = len(every) - 1 - good[:, ::-1].argmax(axis=1)
    often = (times > 1) & ((times >= known) | (first_bad > last_good))
    listed = (times > 0) & ((known == 0) | often)
    return {readings.nodes[end] for end in np.flatnonzero(listed).tolist()}
