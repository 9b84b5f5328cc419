# SPDX-License-Identifier: MIT
"""List what a sweep could not measure: nodes, their NICs, and pairs."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from busbar.sweep.hostlist import natural
from busbar.sweep.readings import Readings
from busbar.sweep.rows import MeasuredPair


def unmeasured(readings: Readings) -> list[str]:
    """Return the ids, in the order of the file; each failed row is behind one of them.

    A node (``NODE``) or NIC (``NODE/NIC``) is listed if it has no reading, or if it failed at
    least twice and as often as it did not, or from a round to the last. A round that more than
    half of the nodes have a row of counts as failed for a node that has none. Other failures are
    listed as pairs: ``A-B`` or ``A-B/NIC``.
    """
    failed: dict[str | None, list[MeasuredPair]] = defaultdict(list)
    for row in readings.failed:
        failed[row.nic].append(row)
    found: dict[str, None] = {}
    for nic in failed.keys() | readings.measured.keys():
        ends = _ends(readings, nic, failed[nic])
        found |= dict.fromkeys(_id(node, nic) for node in ends)
        for row in failed[nic]:
            if not ends & {row.a, row.b}:
                pair = sorted((row.a, row.b), key=natural)
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
    good: dict[str, set[int]] = defaultdict(set)
    pairs = readings.measured.get(nic)
    if pairs is not None:
        ends = [*pairs.a.tolist(), *pairs.b.tolist()]
        for end, number in zip(ends, pairs.round.tolist() * 2, strict=True):
            good[readings.nodes[end]].add(number)
    bad: dict[str, set[int]] = defaultdict(set)
    for row in failed:
        for node in (row.a, row.b) if row.b else (row.a,):
            bad[node].add(row.round)
    present = Counter(
        number for rounds in (good, bad) for one in rounds.values() for number in one
    )
    full = {number for number, nodes in present.items() if nodes * 2 > len(readings.nodes)}
    found = set()
    for node in readings.nodes:
        lost, known = bad[node] | (full - good[node]), good[node]
        often = len(lost) > 1 and (len(lost) >= len(known) or min(lost) > max(known))
        if lost and (not known or often):
            found.add(node)
    return found
