# SPDX-License-Identifier: MIT
"""What the rules about a running job work on, and the causes that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from busbar.engine.reading import Cause, Confidence, Evidence
from busbar.explain.catalog import CAUSES
from busbar.job.sample import LiveRank, NodeSample, ranks_of
from busbar.words import names_text

_YOUNG_S = 4.0


@dataclass(frozen=True)
class LiveJob:
    """What was seen of a job."""

    nodes: tuple[NodeSample, ...]
    ranks: tuple[LiveRank, ...]

    @classmethod
    def of(cls, nodes: Sequence[NodeSample]) -> LiveJob:
        """Return the job that samples of its nodes show."""
        return cls(tuple(nodes), tuple(ranks_of(nodes)))

    @property
    def unsteady(self) -> str:
        """Why ranks cannot be compared with each other; empty if they can."""
        if any(rank.main.gone for rank in self.ranks):
            return "ranks ended while they were observed: the job is ending"
        if any(rank.main.age_s < _YOUNG_S for rank in self.ranks):
            return "the job has just started"
        world = max((rank.main.world or 0 for rank in self.ranks if rank.named), default=0)
        seen = len(self.ranks)
        return f"only {seen} of {world} ranks were seen" if seen < world else ""

    def outliers(
        self, value: Callable[[LiveRank], float], least: float, apart: float
    ) -> list[LiveRank]:
        """Return ranks whose value is at least ``least``, and above the others' by ``apart``."""
        values = [value(rank) for rank in self.ranks]
        found = []
        for n, rank in enumerate(self.ranks):
            others = values[:n] + values[n + 1 :]
            if values[n] >= least and (not others or values[n] >= median(others) + apart):
                found.append(rank)
        return found


Rule = Callable[[LiveJob], Iterator[Cause]]


def cause(
    id_: str,
    confidence: Confidence,
    summary: str,
    ranks: Sequence[LiveRank],
    *facts: tuple[str, str],
) -> Cause:
    """Return a cause of the catalogue; each fact is a file of the first rank, and its text."""
    place = f"{ranks[0].node.node}:"
    lines = tuple(
        Evidence(
            f"{place}{file if file[:1] in '/G' else f'/proc/{ranks[0].main.pid}/{file}'}", 1, text
        )
        for file, text in facts
    )
    details = {
        "ranks": sorted({each.number for each in ranks if each.named}),
        "pids": sorted({each.main.pid for each in ranks}),
        "nodes": sorted({each.node.node for each in ranks}),
    }
    return Cause(id_, confidence, summary, lines, CAUSES[id_].remedy, details)


def named(ranks: Sequence[LiveRank]) -> str:
    """Return ``rank 3 (PID 4711) on n2`` or ``ranks 3, 5, 8``."""
    if len(ranks) == 1:
        return str(ranks[0])
    numbers = [str(each.number if each.named else each.main.pid) for each in ranks]
    return f"{'ranks' if ranks[0].named else 'PIDs'} {names_text(numbers, 4)}"
