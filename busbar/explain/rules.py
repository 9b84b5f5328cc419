# SPDX-License-Identifier: MIT
"""What rules work with: the context of a run, and findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from busbar.engine.busy import Load
from busbar.engine.job_output import JobOutput, Occurrence, Setting
from busbar.engine.reading import Confidence, Evidence, Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import Judged
from busbar.site.model import NodeType, Site
from busbar.verdict import Verdict


class Explains(StrEnum):
    """The kind of bad run that a finding without an effect of its own explains."""

    SLOW = "slow"
    FAILURE = "failure"
    IMPOSSIBLE = "impossible"
    LOAD = "load"
    """Readings below their band that are ``unknown`` for it."""


@dataclass(frozen=True)
class Finding:
    """A cause that a rule found."""

    id: str
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    summary: str = ""
    explains: Explains = Explains.SLOW
    effect: Verdict = Verdict.PASS
    """The verdict that the evidence alone justifies; ``pass`` if it only explains a bad run."""
    details: dict[str, Any] = field(default_factory=dict)


def failure(
    id_: str, evidence: Iterable[Evidence], summary: str, confidence: Confidence = "certain"
) -> Finding:
    """Return the finding of a cause that by itself makes a run ``failed``."""
    return Finding(
        id_, confidence, tuple(evidence), summary, Explains.FAILURE, effect=Verdict.FAILED
    )


def degraded(
    id_: str, evidence: Iterable[Evidence], summary: str, confidence: Confidence = "certain"
) -> Finding:
    """Return the finding of a cause that by itself makes a run ``degraded``."""
    return Finding(id_, confidence, tuple(evidence), summary, effect=Verdict.DEGRADED)


def lines_of(*seen: Occurrence | Setting | None) -> tuple[Evidence, ...]:
    """Return the lines that show what was seen; nothing for what was not."""
    return tuple(each.evidence for each in seen if each)


@dataclass(frozen=True)
class Context:
    """The run that a rule looks at."""

    facts: JobOutput
    run: Run = field(default_factory=Run)
    judged: Sequence[Judged] = ()
    operation: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    loads: Sequence[Load] = ()
    """What other programs did to the run."""
    excused: bool = False
    """Whether readings are ``unknown`` for it."""

    @property
    def starving(self) -> list[Load]:
        """What can have kept the run from ending in time."""
        return [load for load in self.loads if load.starves]

    @property
    def site(self) -> Site | None:
        """The site whose bands judged the readings."""
        return self.run.site

    @property
    def node(self) -> NodeType | None:
        """The node type of the partition; the site's first if the partition is not known."""
        return self.site.node_type(self.run.partition) if self.site else None

    @property
    def on_gpu(self) -> bool:
        """Whether the run is known to use GPU buffers on at least one side."""
        if self.facts.device:
            return self.facts.device != "host"
        return self.run.memory == "device"

    @property
    def slow_sizes(self) -> list[int]:
        """Sizes at which a reading is below its band."""
        return sorted({j.reading.nbytes for j in self.judged if j.is_slow})

    @property
    def largest_rates(self) -> list[Reading]:
        """Bandwidths at the largest size measured."""
        rates = [r for r in self.facts.readings if r.kind in ("bw", "busbw")]
        largest = max((r.nbytes for r in rates), default=0)
        return [r for r in rates if r.nbytes == largest]
