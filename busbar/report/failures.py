# SPDX-License-Identifier: MIT
"""What is wrong, once for each cause: the checks, the evidence, the remedy, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from busbar.check.names import short_name, without_place
from busbar.check.snapshot import Snapshot
from busbar.detect.detected import NAME as DETECTED
from busbar.engine.reading import Evidence
from busbar.engine.results import Outcome
from busbar.report.rows import Namer
from busbar.verdict import Verdict, worst

_T = TypeVar("_T")
_MOST_MESSAGES = 4
_MOST_EVIDENCE = 3
_MOST_CHARACTERS = 700
_MOST_NODES = 16


@dataclass
class Failure:
    """Failures with one cause, or without a known cause."""

    id: str
    summaries: list[str]
    """What was found, in one sentence each."""
    confidence: str
    remedy: str
    verdict: Verdict = Verdict.PASS
    checks: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    repeat: str = ""
    new: bool = False
    """Whether the run before did not have it."""

    @property
    def known(self) -> str:
        """The cause, or that none is known; if it did not run, the reason."""
        if self.id or self.verdict is Verdict.NOT_RUN:
            return self.id or "did not start or end"
        return "no cause was found"

    @property
    def shown_messages(self) -> list[str]:
        """The first messages, and how many more there are."""
        return _first([each for each in self.messages if each not in self.summaries])

    @property
    def shown_summaries(self) -> list[str]:
        """The first summaries, and how many more there are."""
        return _first(self.summaries)


def failures(run: Snapshot, name: Namer, *, scheduled: bool) -> list[Failure]:
    """Return all faults of the machine or the measurement, the worst first.

    ``scheduled`` says whether nodes can be chosen.
    """
    found: dict[str, Failure] = {}
    for outcome in sorted(run.outcomes, key=lambda outcome: -outcome.verdict.severity):
        if not outcome.verdict.is_problem:
            continue
        for failure in _of(outcome):
            kept = found.setdefault(failure.id, failure)
            if not kept.repeat:
                kept.repeat = repeat(run, outcome, scheduled=scheduled)
            kept.verdict = worst([kept.verdict, outcome.verdict])
            _add(kept.summaries, failure.summaries)
            _add(kept.checks, [name(outcome)])
            _add(kept.nodes, _bad_nodes(outcome))
            _add(kept.messages, _messages(outcome))
            if kept is not failure:
                _add(kept.evidence, failure.evidence)
                del kept.evidence[_MOST_EVIDENCE:]
    return sorted(found.values(), key=lambda each: (-each.verdict.severity, -len(each.checks)))


def _first(texts: list[str]) -> list[str]:
    more = len(texts) - _MOST_MESSAGES
    return texts[:_MOST_MESSAGES] + ([f"and {more} more"] if more > 0 else [])


def _of(outcome: Outcome) -> Iterable[Failure]:
    for cause in outcome.causes:
        lines = [replace(e, text=_cut(e.text.strip())) for e in cause.evidence[:_MOST_EVIDENCE]]
        yield Failure(
            *(cause.id, [_cut(cause.summary)], cause.confidence, cause.remedy), evidence=lines
        )
    if not outcome.causes:
        yield Failure("", _messages(outcome)[:_MOST_MESSAGES] or ["no recorded reason"], "", "")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " ..."


def _messages(outcome: Outcome) -> list[str]:
    return [_cut(row.message) for row in outcome.results if row.verdict.is_problem and row.message]


def _bad_nodes(outcome: Outcome) -> list[str]:
    return [
        node
        for row in outcome.results
        if row.verdict.is_problem and row.where
        for node in row.where.split(",")
    ]


def _add(kept: list[_T], more: Sequence[_T]) -> None:
    kept += [each for each in dict.fromkeys(more) if each not in kept]


def repeat(run: Snapshot, outcome: Outcome, *, scheduled: bool) -> str:
    """Return the command that runs this check again, on the nodes on which it went wrong."""
    words = ["busbar", "check", *(["--site", run.site] if run.site not in ("", DETECTED) else [])]
    if run.lane:
        words += ["--lane", run.lane]
    if outcome.check.startswith("require "):
        return shlex.join([*words, "--require", outcome.check.removeprefix("require ")])
    if outcome.partition:
        words += ["-n", short_name(without_place(outcome.check))]
    nodes = list(dict.fromkeys(_bad_nodes(outcome)))
    if scheduled and 0 < len(nodes) <= _MOST_NODES:
        words += ["--nodelist", ",".join(nodes)]
    return shlex.join(words)
