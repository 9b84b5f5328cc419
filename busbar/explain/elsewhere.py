# SPDX-License-Identifier: MIT
"""Findings of another node, job or time than the run's, or after its end: no causes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from busbar.engine.reading import Note
from busbar.explain.rules import Context, Finding
from busbar.explain.timeline import times_of

_KERNEL = re.compile(r"\bkernel:|\bNVRM: ")
_ENDED = "FAILED|TIMEOUT|OUT_OF_ME|NODE_FAIL|CANCELLED|PREEMPTED|DEADLINE"
_JOB = re.compile(
    rf"\b(?:JobId=|StepId=|JOB )(?P<id>\d{{1,18}})\b|^\s*(?P<row>\d{{2,18}})[. |].*\b(?:{_ENDED})"
)
"""How Slurm names a job: in messages, by ``scontrol``, and in rows of ``sacct``."""
_OWN_FILE = re.compile(r"\bslurm[-_.](?P<id>\d{2,18})(?:\.\w+)?$")
_APART = timedelta(hours=15)
"""Logs of one incident in two time zones are up to 14 hours apart."""
_YEAR = timedelta(days=366)
CONSEQUENCES = ("timeout", "fabric-timeout", "peer-unreachable", "rank-died", "rank-silent")
"""Causes that others can bring about, on other ranks or at the end."""


def elsewhere(found: Finding, context: Context) -> Note | None:
    """Return the note of a finding that has nothing to do with the run; None if it has."""
    said = f"{found.id}: {found.summary}", found.evidence
    if not found.evidence or len(context.facts.files) < 2:
        return None
    if _is_of_another_job(found, context):
        return Note("other-job", *said)
    if any(not _KERNEL.search(line.text) for line in found.evidence):
        return None
    hosts = {host.split(".")[0] for host in context.facts.hosts}
    places = {context.place(line).host.split(".")[0] for line in found.evidence}
    if hosts and not places & {*hosts, ""}:
        return Note("other-node", *said)
    return Note("other-time", *said) if _is_of_another_time(found, context) else None


def before_the_end(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without consequences that only lines after a cancellation show."""
    ends = (f for f in findings if f.id == "job-cancelled" and f.confidence == "certain")
    if not (end := next(ends, None)):
        return list(findings)
    after = end.evidence[0].is_before
    kept = [f for f in findings if f.id not in end.hides]
    return [f for f in kept if f.id not in CONSEQUENCES or not all(map(after, f.evidence))]


def _is_of_another_job(found: Finding, context: Context) -> bool:
    """Return whether all of it comes from Slurm, about jobs whose output is not in the input."""
    own = {name["id"] for each in context.facts.files if (name := _OWN_FILE.search(each))}
    named = [_JOB.search(line.text) for line in found.evidence]
    return bool(own) and all(each and (each["id"] or each["row"]) not in own for each in named)


def _is_of_another_time(found: Finding, context: Context) -> bool:
    """Return whether it is long before the first line of all other files, or after the last."""
    own = {line.file for line in found.evidence}
    ends = [text for file, text in context.facts.ends.items() if file not in own]
    window = sorted(_dates(times_of("\n".join(ends))))
    dates = list(_dates(context.place(line).moment for line in found.evidence))
    return bool(window and dates) and not any(
        window[0] <= each <= window[-1]
        or any(min(abs(each - end), _YEAR - abs(each - end)) < _APART for end in window)
        for each in dates
    )


def _dates(moments: Iterator[tuple[int, ...]]) -> Iterator[datetime]:
    """Yield those with a month and a day; most logs have no year."""
    for moment in moments:
        if len(moment) == 5:
            with suppress(ValueError):  # not a date: numbers of another kind
                yield datetime(2000, *moment)
