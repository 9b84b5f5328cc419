# SPDX-License-Identifier: MIT
"""What rules work with: the context of a run, and findings."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, TypeAlias

from busbar.engine.busy import Load
from busbar.engine.job_output import ExitStatus, JobOutput, Occurrence, Setting
from busbar.engine.reading import Confidence, Evidence, Reading
from busbar.engine.run import Run
from busbar.engine.verdicts import Dip, Judged
from busbar.explain.timeline import Owner, Position, located, owners_of
from busbar.parse import numbers
from busbar.parse.events import Error
from busbar.site.model import NodeType, Site
from busbar.verdict import Verdict


class Explains(StrEnum):
    """The kind of bad run that a finding without its own effect explains."""

    SLOW = "slow"
    FAILURE = "failure"
    LOAD = "load"
    """Readings below their band that are ``unknown`` for it."""


@dataclass(frozen=True)
class Finding:
    """A cause that a rule found."""

    id: str
    """Empty for the first cause that the rule declares."""
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    summary: str = ""
    explains: Explains = Explains.SLOW
    effect: Verdict = Verdict.PASS
    """The verdict that the evidence alone justifies; ``pass`` if it only explains a bad run."""
    details: dict[str, Any] = field(default_factory=dict)
    hides: Collection[str] = ()
    """Consequences in addition to those of the catalogue."""


Shown: TypeAlias = Evidence | Occurrence | Setting | ExitStatus | Reading | None
"""What has a line of the input; None for what was not seen."""


def lines_of(*seen: Shown) -> tuple[Evidence, ...]:
    """Return the lines that show what was seen; nothing for what was not."""
    lines = (each if isinstance(each, Evidence | None) else each.evidence for each in seen)
    return tuple(line for line in lines if line)


def words_of(setting: Setting | None) -> str:
    """Return ``; UCX_TLS is tcp`` for a setting that the run had."""
    return f"; {setting.name} is {setting.value}" if setting else ""


def finding(
    summary: str,
    *seen: Shown,
    certain: bool = True,
    explains: Explains = Explains.SLOW,
    effect: Verdict = Verdict.PASS,
    id_: str = "",
    hides: Collection[str] = (),
    **details: Any,
) -> Finding:
    """Return a finding with the lines that show it, of the first cause of the rule by default."""
    confidence: Confidence = "certain" if certain else "likely"
    return Finding(id_, confidence, lines_of(*seen), summary, explains, effect, details, hides)


failure = partial(finding, explains=Explains.FAILURE, effect=Verdict.FAILED)
"""Return the finding of a cause that explains a failure, and is a failure on its own."""
degraded = partial(finding, effect=Verdict.DEGRADED)
"""Return the finding of a cause that makes a run ``degraded`` on its own."""

_PID = re.compile(r"\w:(?P<pid>\d{1,18})[ :]")
"""Of the process that NCCL, UCX and Open MPI write before a line."""


@dataclass(frozen=True)
class Context:
    """The run that a rule looks at."""

    facts: JobOutput
    run: Run = field(default_factory=Run)
    judged: Sequence[Judged] = ()
    dips: Sequence[Dip] = ()
    operation: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    loads: Sequence[Load] = ()
    """What other programs did to the run."""
    excused: bool = False
    """Whether readings are ``unknown`` for it."""
    of_check: bool = False
    """Whether the run is a launch of a check."""

    @cached_property
    def owners(self) -> Mapping[int, Owner]:
        """Where each rank runs."""
        return owners_of(self.facts)

    def place(self, line: Evidence | None, rank: int | None = None) -> Position:
        """Return where and when a line was printed, or what it reports about a rank."""
        return located(line, self.owners, rank)

    @property
    def starving(self) -> list[Load]:
        """What can have kept the run from ending in time."""
        return [load for load in self.loads if load.starves]

    def ends(self, own: Evidence) -> bool:
        """Return whether a message is of a program that measured nothing after it.

        It follows all results, or is of a command before the one that measured. Messages of
        another file than the results have no place among them.
        """
        started = self._started_by
        before = started and own.is_before(started)
        if before and self.facts.commands[0][1].is_before(own):
            return True
        return self.is_after_results(own)

    def is_after_results(self, own: Evidence) -> bool:
        """Return whether a line follows all results in their file, or others reported it."""
        redirected = self.facts.redirected
        reported = redirected and redirected.is_before(own)
        return bool(reported) or all(line.is_before(own) for line in self.results)

    def may_end(self, own: Evidence) -> bool:
        """Return whether the input leaves open if a message is of the program that measured.

        It is before the last result and names no process of that program: it can be survived, or
        of a program that failed before or beside it.
        """
        if not self.facts.readings or self.ends(own):
            return False
        started, start = self._started_by, next(iter(self.facts.launches), None)
        if started and start and started.is_before(own) and own.is_before(start):
            return False
        if start and own.is_before(start):
            return True
        return not self.is_of_a_rank(own)

    def is_of_a_rank(self, line: Evidence) -> bool:
        """Return whether a line names a process of the program that measured."""
        processes = {pid for _, pid in self.facts.processes}
        return any(numbers.count(pid) in processes for pid in _PID.findall(line.text))

    @property
    def results(self) -> list[Evidence]:
        """The line of the last reading and the one with which the tool ends its output."""
        last = [each.evidence for each in self.facts.readings[-1:]]
        return [line for line in (*last, self.facts.finished) if line]

    @property
    def _started_by(self) -> Evidence | None:
        """The command line that started what measured, if the input shows it."""
        start = next(iter(self.facts.launches), None)
        commands = [line for _, line in self.facts.commands if start and line.is_before(start)]
        return commands[-1] if commands else None

    def errors(self, code: str) -> list[tuple[Error, Evidence]]:
        """Return the errors of one kind that our own programs report, with their lines."""
        return [(e, line) for e, line in self.facts.events_of(Error) if e.code == code]

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
