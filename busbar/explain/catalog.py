# SPDX-License-Identifier: MIT
"""Causes and notes: entries from ``causes.yaml``, rules and precedence from decorators."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence, Note
from busbar.explain.named import Subject
from busbar.explain.rules import Context, Finding
from busbar.parse import numbers
from busbar.parse.messages import Pattern, pattern
from busbar.parse.tables import load_all

Rule: TypeAlias = Callable[[Context], Finding | Iterable[Finding] | None]
NoteRule: TypeAlias = Callable[[Context], Note | Iterable[Note] | None]
_T = TypeVar("_T", Finding, Note)
_END_OF_RUN = ("rank-died", "job-cancelled", "truncated-output", "launch-failed")
"""What follows from every fatal cause."""


_LEAD = re.compile(r"^\.\{0,\d+\}")
Strength: TypeAlias = Literal["certain", "likely", "hint"]
"""What a message proves: the cause, probably the cause, or only what could go wrong."""


@dataclass(frozen=True)
class Wording:
    """A message that shows a cause, as :func:`busbar.parse.messages.pattern` takes it."""

    needle: str
    regex: str = ""
    info: Sequence[str] = ()
    strength: Strength = "certain"

    def pattern(self, cause: str, *, text: bool, in_context: bool) -> Pattern:
        """Return the pattern; with ``text`` the whole match is a field of that name."""
        regex = self.regex or re.escape(self.needle) + ".*"
        if text and "(?P<text>" not in regex:
            start = "^" if regex.startswith("^") else ""
            # What leads to the words begins with a word, not inside of one.
            regex = _LEAD.sub(r"(?:(?<!\\S)\g<0>)?", regex)
            regex = f"{start}(?P<text>{regex.removeprefix('^')})"
        kind = f"{cause}.{self.strength}"
        return pattern(kind, self.needle, regex, info=self.info, in_context=in_context)


@dataclass(frozen=True)
class OfVersion:
    """What to do instead for some messages, or for some versions of a library."""

    remedy: str
    library: str = ""
    """A key of ``VERSIONS``."""
    since: str = ""
    before: str = ""
    words: str = ""
    """An expression for the message or the list of ports, whatever the version."""

    def fits(self, facts: JobOutput, lines: Iterable[Evidence] = ()) -> bool:
        """Return whether all versions that the output shows are in the range, or the words."""
        if self.words:
            ports = (seen.evidence for seen in facts.seen("nccl.ib-devices"))
            return any(re.search(self.words, line.text) for line in (*lines, *ports))
        shown = [
            _release(v) for kind, name in VERSIONS[self.library] for v in facts.values(kind, name)
        ]
        return bool(shown) and all(
            (not self.since or each >= _release(self.since))
            and (not self.before or each < _release(self.before))
            for each in shown
        )


VERSIONS: Mapping[str, Sequence[tuple[str, str]]] = {
    "nccl": (("nccl.version", "version"), ("tests.nccl", "library")),
    "rocm": (("rocm.version", "version"),),
    "mpich": (("mpich.version", "version"),),
}
"""By library: the kinds of messages that show its version, each with the field."""


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(numbers.count, re.findall(r"\d{1,9}", version)[:3]))


@dataclass(frozen=True)
class Entry:
    """What a cause means and what to do about it."""

    meaning: str
    remedy: str
    seen: Sequence[Wording] = ()
    """Messages that show it; the cause is fatal."""
    summary: str = "{text}"
    """Filled with the fields of the first message; ``text`` is all that the pattern matched."""
    hides: Sequence[str] = ()
    """As for :func:`cause`."""
    names: Subject | None = None
    """What the summary names besides, from the lines around the message."""
    setting: str = ""
    """A variable whose line is further evidence."""
    despite_readings: bool = False
    """Whether its messages prove a fault even if the run measured; others can be survived."""
    without_readings: bool = False
    """Whether it is named only if the run measured nothing."""
    defaults: Mapping[str, int] = field(default_factory=dict)
    """Variables that show it if one of them is below its default."""
    shown: str = ""
    """A kind of message that is further evidence."""
    remedies: Sequence[OfVersion] = ()
    """Remedies that depend on a version."""

    def remedy_for(self, facts: JobOutput, lines: Iterable[Evidence]) -> str:
        """Return what to do about the messages in ``lines`` with the versions that are shown."""
        fitting = (each.remedy for each in self.remedies if each.fits(facts, lines))
        return next(fitting, self.remedy)

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Entry:
        """Return an entry of ``causes.yaml``."""
        seen = [Wording(**each) for each in row.get("seen", ())]
        remedies = [OfVersion(**each) for each in row.get("remedies", ())]
        return cls(**{**row, "seen": seen, "remedies": remedies})


def _load() -> tuple[dict[str, Entry], dict[str, str]]:
    """Return causes and notes; causes of a tool are ``before`` one of busbar/explain."""
    own, *others = load_all(Path(__file__).with_name("causes.yaml"))
    order, rows = list(own["causes"]), dict(own["causes"])
    for of_tool in others:
        at = 0
        for name, row in of_tool.items():
            if before := row.pop("before", None):
                at = order.index(before)
            order.insert(at, name)
            at += 1
        if doubled := rows.keys() & of_tool:
            raise ValueError(f"two causes.yaml have an entry for {', '.join(sorted(doubled))}")
        rows |= of_tool
    return {name: Entry.read(rows[name]) for name in order}, own["notes"]


CAUSES, NOTES = _load()
"""Causes by id, in the order of precedence; the meaning of notes by id."""
SHOWN_BY_MESSAGES = [
    f"{id_}.{strength}"
    for id_, entry in CAUSES.items()
    if entry.seen
    for strength in ("certain", "likely")
]
"""Kinds of messages that end a run."""

_hidden: dict[str, set[str]] = defaultdict(set)
_rules: list[tuple[str, Callable[[Context], Iterator[Finding]]]] = []
_note_rules: list[tuple[tuple[str, ...], Callable[[Context], Iterable[Note]]]] = []
_patterns: list[Pattern] = []


def _all(found: _T | Iterable[_T] | None) -> Iterable[_T]:
    return (found,) if isinstance(found, Finding | Note) else found or ()


def declare(*ids: str, fatal: bool = False, hides: Iterable[str] = ()) -> None:
    """Declare causes that other code than a rule names; see :func:`cause`."""
    for each in ids:
        _hidden[each].update(hides, _END_OF_RUN if fatal else ())


def cause(
    *ids: str, fatal: bool = False, hides: Iterable[str] = (), patterns: Iterable[Pattern] = ()
) -> Callable[[Rule], Rule]:
    """Declare the causes that a rule names.

    When a cause is found, those that it ``hides`` are its consequences and are not named. A
    ``fatal`` cause ends the run, and hides what every end of a run looks like. ``patterns`` are
    searched in the output beside those of the parsers.
    """
    declare(*ids, fatal=fatal, hides=hides)
    _patterns.extend(patterns)

    def register(rule: Rule) -> Rule:
        @wraps(rule)
        def named(context: Context) -> Iterator[Finding]:
            for each in _all(rule(context)):
                yield each if each.id else replace(each, id=ids[0])

        _rules.append((ids[0], named))
        return rule

    return register


def note(*ids: str, patterns: Iterable[Pattern] = ()) -> Callable[[NoteRule], NoteRule]:
    """Declare the notes that a rule makes, and patterns as :func:`cause` does."""
    _patterns.extend(patterns)

    def register(rule: NoteRule) -> NoteRule:
        _note_rules.append((ids, wraps(rule)(lambda context: _all(rule(context)))))
        return rule

    return register


def rules() -> tuple[Callable[[Context], Iterator[Finding]], ...]:
    """Return the rules in the order of their causes in ``causes.yaml``.

    Raises ``ValueError`` if a cause or note has no entry, or an entry has no rule.
    """
    missing = [each for each in _hidden if each not in CAUSES]
    missing += [each for consequences in _hidden.values() for each in consequences - CAUSES.keys()]
    missing += [each for ids, _ in _note_rules for each in ids if each not in NOTES]
    if missing:
        raise ValueError(f"causes.yaml has no entry for {', '.join(sorted(set(missing)))}")
    if unnamed := [each for each in CAUSES if each not in _hidden]:
        raise ValueError(f"no rule names {', '.join(unnamed)} of causes.yaml")
    order = list(CAUSES)
    return tuple(rule for _, rule in sorted(_rules, key=lambda item: order.index(item[0])))


def note_rules() -> tuple[Callable[[Context], Iterable[Note]], ...]:
    """Return the rules that make notes."""
    return tuple(rule for _, rule in _note_rules)


def patterns() -> tuple[Pattern, ...]:
    """Return the patterns that are declared next to rules."""
    return tuple(_patterns)


def hidden_by(id_: str) -> frozenset[str]:
    """Return the causes that are not named when this one is."""
    return frozenset(_hidden[id_]) - {id_}
