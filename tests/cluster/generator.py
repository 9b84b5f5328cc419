# SPDX-License-Identifier: MIT
"""Rows of fleets with faults, written without code of the sweep but the rows themselves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from busbar.cluster.sweep.analyse import Analysis, analyse
from busbar.cluster.sweep.judge_pairs import Least
from busbar.cluster.sweep.rows import Results, result_row
from busbar.slurm.topology import SwitchTopology

Row = dict[str, Any]
Rate = Callable[[str, str, str | None], float]


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def matchings(nodes: Sequence[str], rounds: int, draw: random.Random) -> Iterator[Row]:
    """Random pairs, as another planner might choose them."""
    for number in range(1, rounds + 1):
        order = draw.sample(nodes, len(nodes))
        for a, b in zip(order[::2], order[1::2], strict=False):
            yield {"round": number, "a": a, "b": b}


def round_robin(nodes: Sequence[str]) -> Iterator[Row]:
    """All pairs of an even number of nodes."""
    seats = list(nodes)
    for number in range(1, len(nodes)):
        for a, b in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True):
            yield {"round": number, "a": a, "b": b}
        seats.insert(1, seats.pop())


def measured(
    rows: Iterable[Row],
    rate: Rate,
    noise: Callable[[Row], float],
    nics: Sequence[str | None] = (None,),
) -> list[Row]:
    """Return results: ``rate`` of the ends and the NIC, times the noise of the row."""
    return [
        {**row, "nic": nic, "gb_per_s": rate(row["a"], row["b"], nic) * noise(row), "state": "ok"}
        for row in rows
        for nic in nics
    ]


def slower(factors: dict[str, float], full: float = 25.0) -> Rate:
    """A pair is as slow as its slower end."""
    return lambda a, b, nic: full * min(factors.get(a, 1.0), factors.get(b, 1.0))


def found(
    rows: Iterable[Row],
    leaves: dict[str, str] | None = None,
    least: float | None = None,
    kinds: dict[str, str] | None = None,
) -> Analysis:
    results = Results(tuple(map(result_row, rows)))
    nics = {row.nic for row in results.rows}
    limits = {nic: Least(least, "test") for nic in nics} if least else {}
    return analyse(results, SwitchTopology(leaves or {}, kinds or {}), limits)


def ids(analysis: Analysis) -> list[tuple[str, str]]:
    return sorted((one.kind, one.id) for one in analysis.accused)
