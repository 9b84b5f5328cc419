# SPDX-License-Identifier: MIT
"""What the rules about a running job work on, and the causes that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from busbar.engine.reading import Cause, Confidence, Evidence
from busbar.explain.catalog import CAUSES
from busbar.job.sample import LiveRank, NodeSample
from busbar.parse.tables import load_yaml
from busbar.words import names_text

TABLE = load_yaml(Path(__file__).with_name("rules.yaml"))
LIMIT = SimpleNamespace(**TABLE["limits"])


@dataclass(frozen=True)
class LiveJob:
    """What was seen of a job."""

    nodes: Sequence[NodeSample]
    ranks: Sequence[LiveRank]

    @property
    def unsteady(self) -> str:
        """Why ranks cannot be compared with each other; empty if they can."""
        if any(rank.main.gone for rank in self.ranks):
            return "ranks exited during the observation: the job is ending"
        if any(rank.main.age_s < LIMIT.young_s for rank in self.ranks):
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


def cause(rule: str, ranks: Sequence[LiveRank], **fields: Any) -> Cause:
    """Apply a rule of ``rules.yaml`` to ranks; its texts name the ``fields``."""
    row, main = TABLE["rules"][rule], ranks[0].main
    id_, text, file, fact = (
        row.get(key, row["text"]).format(ranks=named(ranks), main=main, **fields)
        for key in ("cause", "text", "file", "fact")
    )
    line = Evidence(f"{ranks[0].node.node}:{file}", 1, fact)
    details = {
        "ranks": sorted({each.number for each in ranks if each.named}),
        "pids": sorted({each.main.pid for each in ranks}),
        "nodes": sorted({each.node.node for each in ranks}),
    }
    strength: Confidence = "certain" if row.get("certain") else "likely"
    return Cause(id_, strength, text, (line,), CAUSES[id_].remedy, details)


def named(ranks: Sequence[LiveRank]) -> str:
    """Return ``rank 3 (PID 4711) on n2`` or ``ranks 3, 5, 8 on n2``."""
    if len(ranks) == 1:
        return str(ranks[0])
    numbers = [str(each.number if each.named else each.main.pid) for each in ranks]
    nodes = {each.node.node for each in ranks}
    where = f" on {nodes.pop()}" if len(nodes) == 1 else ""
    return f"{'ranks' if ranks[0].named else 'PIDs'} {names_text(numbers, 4)}{where}"
