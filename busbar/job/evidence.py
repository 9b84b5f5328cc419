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
        pairs = [(rank, value(rank)) for rank in self.ranks]
        return [
            rank
            for rank, mine in pairs
            if mine >= max(least, median([v for r, v in pairs if r is not rank] or [0.0]) + apart)
        ]


Rule = Callable[[LiveJob], Iterator[Cause]]


def cause(  # noqa: PLR0917 - a fact has as many parts as it has
    id_: str, strength: Confidence, text: str, ranks: Sequence[LiveRank], file: str, said: str = ""
) -> Cause:
    """Return a cause of the catalogue; ``said`` is what a file of its first rank shows."""
    place = file if file[:1] in "/GR" else f"/proc/{ranks[0].main.pid}/{file}"
    line = Evidence(f"{ranks[0].node.node}:{place}", 1, said or text)
    details = {
        "ranks": sorted({each.number for each in ranks if each.named}),
        "pids": sorted({each.main.pid for each in ranks}),
        "nodes": sorted({each.node.node for each in ranks}),
    }
    return Cause(id_, strength, text, (line,), CAUSES[id_].remedy, details)


def named(ranks: Sequence[LiveRank]) -> str:
    """Return ``rank 3 (PID 4711) on n2`` or ``ranks 3, 5, 8``."""
    if len(ranks) == 1:
        return str(ranks[0])
    numbers = [str(each.number if each.named else each.main.pid) for each in ranks]
    return f"{'ranks' if ranks[0].named else 'PIDs'} {names_text(numbers, 4)}"
