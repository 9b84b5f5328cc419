# SPDX-License-Identifier: MIT
"""A model of a fleet, to measure how well a sweep localises.

It shares nothing with the analysis but the rows: every part of a path has a rate, a pair gets that
of the slowest part on its path, and noise changes each reading on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from busbar.cluster.sweep.rows import MeasuredPair, PairState, PlannedPair
from busbar.slurm.topology import SwitchTopology

FaultKind = Literal["node", "nic", "link", "uplink"]
Noise = Literal["normal", "t3", "lognormal"]
_GB_PER_S = 50.0
_DRAWS: dict[Noise, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda random, count: random.standard_normal(count),
    "t3": lambda random, count: random.standard_t(3, count),
    "lognormal": lambda random, count: -np.expm1(random.normal(0, 1, count)),
}
"""Draws of unit size; those of ``lognormal`` are rarely slow, and then by much."""


@dataclass(frozen=True)
class Fleet:
    """Nodes, their leaves and what is slow."""

    nodes: tuple[str, ...]
    topology: SwitchTopology
    nics: tuple[str, ...] = ()
    """NICs that are measured one by one; empty: all at once."""
    noise: float = 0.03
    tail: Noise = "normal"
    slow_nodes: dict[str, float] = field(default_factory=dict)
    """Share of its rate that each slow node still has."""
    slow_nics: dict[tuple[str, str], float] = field(default_factory=dict)
    slow_links: dict[frozenset[str], float] = field(default_factory=dict)
    slow_uplinks: dict[str, float] = field(default_factory=dict)
    """By leaf."""

    def measure(
        self, plan: Sequence[PlannedPair], random: np.random.Generator
    ) -> Iterator[MeasuredPair]:
        """Yield what the pairs of a plan measure."""
        names = self.nics or (None,)
        draws = iter(_DRAWS[self.tail](random, len(plan) * len(names)).tolist())
        for row in plan:
            for nic in names:
                factor = max(0.01, 1 + self.noise * next(draws))
                rate = _GB_PER_S * min(self._shares(row.a, row.b, nic)) * factor
                yield MeasuredPair(row.round, row.a, row.b, nic, rate, PairState.OK)

    def _shares(self, a: str, b: str, nic: str | None) -> Iterable[float]:
        yield self.slow_links.get(frozenset((a, b)), 1.0)
        for node in (a, b):
            yield self.slow_nodes.get(node, 1.0)
            if nic is not None:
                yield self.slow_nics.get((node, nic), 1.0)
        leaves = [self.topology.leaf_of.get(node, node) for node in (a, b)]
        if leaves[0] != leaves[1]:
            for leaf in leaves:
                yield self.slow_uplinks.get(leaf, 1.0)
