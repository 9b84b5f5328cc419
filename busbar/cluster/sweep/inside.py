# SPDX-License-Identifier: MIT
"""Judge round 0 of a sweep: each link inside a node against the same link of other nodes.

A row of round 0 has the node as both ends, and the link as its ``nic``: ``gpu0-gpu1``,
``gpu0-host``, or ``memory``. Nothing else can disturb the other end, so that three readings of one
node decide. The best of them counts, as other programs make a reading slower and never faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.rows import MeasuredPair
from busbar.robust import least_of
from busbar.slurm.hostlist import natural

MEMORY = "memory"
"""The memory of the host, of nodes without GPUs."""
HOST = "host"
MESSAGE = 16 << 20
"""Bytes of a message between two GPUs of a node. Every link class with a band has one for it."""
# The constants: value, meaning, and how to see what another value costs.
#   lab     pytest tests/lab/test_sweep.py, whose nodes share their cores with other programs
#   method  part of the method, with the reason above
READINGS = 3  # method: readings of a link that is accused
_FEWEST_NODES = 4  # method: of fewer nodes, nobody knows which is the slow one
_DEVIATIONS = 6  # lab: how far below the same link of the others a slow one is
_MEMORY_TOLERANCE = 0.5  # lab: a core copies at another rate if its clock is another
_MOST_SLOW = 0.1  # method: share of slow nodes beyond which, and beyond two, they are another kind


@dataclass(frozen=True)
class SlowInside:
    """A link inside a node, a GPU with all its links, or the node with all of them."""

    node: str
    part: str
    """The link, the GPU, or nothing for the whole node."""
    kind: Literal["node", "link"]
    evidence: str

    @property
    def id(self) -> str:
        """``NODE``, or ``NODE/gpu0-gpu1``."""
        return f"{self.node}/{self.part}" if self.part else self.node


@dataclass(frozen=True)
class Inside:
    """What round 0 shows."""

    slow: tuple[SlowInside, ...] = ()
    again: tuple[str, ...] = ()
    """Nodes with slow links that were not measured three times."""
    unmeasured: tuple[str, ...] = ()
    """``NODE/LINK`` without a rate."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Link:
    """The readings of one link of one node."""

    best: float
    readings: int


def judge_inside(
    rows: Iterable[MeasuredPair], least: Mapping[str | None, Least], tolerance: float
) -> Inside:
    """Judge the rows of round 0; ``least`` has what a link must reach, by its name."""
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    links: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        name = row.nic or MEMORY
        links[row.a][name] = None
        if row.gb_per_s:
            rates[name][row.a].append(row.gb_per_s)
    slow: dict[str, dict[str, str]] = defaultdict(dict)
    again: set[str] = set()
    notes: list[str] = []
    for name, by_node in rates.items():
        found = {node: _Link(max(each), len(each)) for node, each in by_node.items()}
        floor = _floor(name, found, least.get(name), tolerance)
        below = {
            node: link for node, link in found.items() if floor and link.best < floor.gb_per_s
        }
        if name not in least and len(below) > max(2, _MOST_SLOW * len(found)):
            notes.append(f"{name} is slow in {len(below)} of {len(found)} nodes: none is accused")
            continue
        for node, link in below.items():
            if link.readings < READINGS:
                again.add(node)
            elif floor:
                slow[node][name] = f"{link.best:.4g} GB/s at best of {link.readings}; {floor.text}"
    missing = [
        f"{node}/{name}"
        for node, names in links.items()
        for name in names
        if not rates[name][node]
    ]
    return Inside(
        tuple(
            each
            for node in sorted(slow, key=natural)
            for each in _put_together(node, slow[node], [n for n in links[node] if rates[n][node]])
        ),
        tuple(sorted(again, key=natural)),
        tuple(sorted(missing, key=natural)),
        tuple(notes),
    )


def _floor(
    name: str, found: Mapping[str, _Link], least: Least | None, tolerance: float
) -> Least | None:
    """Return the rate below which a link is slow: by the site, else by the other nodes."""
    if least is not None:
        return least
    if len(found) < _FEWEST_NODES:
        return None
    middle, least_alike = least_of([link.best for link in found.values()], _DEVIATIONS)
    tolerance = max(tolerance, _MEMORY_TOLERANCE) if name == MEMORY else tolerance
    text = f"{name} of {len(found)} nodes has {middle:.4g} GB/s"
    return Least(min(middle * (1 - tolerance), least_alike), text)


def _put_together(
    node: str, slow: Mapping[str, str], links: Sequence[str]
) -> Iterable[SlowInside]:
    """Yield the node if all its links are slow, else GPUs with only slow links, else links."""
    if len(slow) == len(links):
        names = ", ".join(slow)
        yield SlowInside(node, "", "node", f"inside it, {names}: {next(iter(slow.values()))}")
        return
    left = dict(slow)
    for gpu in dict.fromkeys(end for link in slow for end in link.split("-") if end != HOST):
        mine = [link for link in links if gpu in link.split("-")]
        if len(mine) > 1 and all(link in slow for link in mine):
            yield SlowInside(node, gpu, "link", f"all {len(mine)} links: {slow[mine[0]]}")
            left = {link: text for link, text in left.items() if link not in mine}
    for link, text in left.items():
        yield SlowInside(node, link, "link", text)
