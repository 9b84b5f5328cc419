# SPDX-License-Identifier: MIT
"""What launchers and log collectors write before each line, learnt from the lines themselves."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from busbar.parse.nccl_log import PROCESS

LONGEST = 400
"""Bytes of the longest prefix: names of a pod, a container and a host, and two times."""
FEWEST_LINES = 3
"""Lines that show a prefix by having it in common."""
MOST_FORMS = 64
"""Forms of a prefix kept of one file: of the ranks that print a table."""

# srun -l ("3: "), mpirun --tag-output ("[1,3]<stdout>: ", "[prterun-host-1@1,3]<stderr>: "),
# Hydra's -prepend-rank ("[3] "), and the time that a log collector puts before them
# ("2026-11-21T07:23:34.5Z "): known without a line to learn from.
_COMMON = re.compile(
    rb"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? )?"
    rb"(?:\s*(?P<srun>\d{1,7}): ?|\[(?:[^\]\s]*,)?(?P<tag>\d+)\]<std(?:out|err)>:? ?"
    rb"|\[(?P<hydra>\d{1,7})\] )?"
)
_TYPE = rb"(?:(?:u?int|fp|f|bfloat)\d\w*|half|float|double)"
_BEGINNING = re.compile(
    rb"#[ \t]*(?:nThread|Using devices|Rank[ \t]+\d|(?:nccl|rccl)-tests|OSU[ \t]"
    rb"|Collective test|Out of bounds|Errors with|Avg bus|Size[ \t]|size[ \t]|Send Buffer)"
    rb'|\{"(?:event|placed)"'
    rb"|(?<![\w.+-])\d{1,18}[ \t]+\d{1,18}[ \t]+" + _TYPE + rb"[ \t]+[\w.-]+[ \t]"
    rb"|(?:exit[_ ](?:status|code))[=:][ \t]*-?\d+[ \t]*$"
    rb"|(?:\$|\++) (?:export \w+=|(?:\w+=\S+ )*\S*(?:mpirun|mpiexec|prterun|orterun|srun|_perf) )"
)
"""Texts with which a line begins if nothing is before it."""

_MONTHS = rb"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = rb"Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_LEVELS = rb"TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL"
_TOKEN = re.compile(
    rb"(?P<fraction>(?<=:\d\d)[.,]\d+)"
    rb"|(?P<hex>\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b)"
    rb"|(?P<number>\d+)|(?P<blank>[ \t]+)"
    rb"|(?P<month>\b(?:" + _MONTHS + rb")\b)|(?P<day>\b(?:" + _DAYS + rb")\b)"
    rb"|(?P<level>\b(?:" + _LEVELS + rb"|" + _LEVELS.lower() + rb")\b)"
    rb"|(?P<stream>\bstd(?:out|err)\b)|(?P<other>.)",
    re.DOTALL,
)
_VARIABLE = {
    "fraction": rb"(?:[.,]\d+)?",
    "hex": rb"[0-9a-f]{6,}",
    "number": rb"\d+",
    "blank": rb"[ \t]+",
    "month": rb"(?:" + _MONTHS + rb")",
    "day": rb"(?:" + _DAYS + rb")",
    "level": rb"(?:" + _LEVELS + rb"|" + _LEVELS.lower() + rb")",
    "stream": rb"std(?:out|err)",
}
"""Parts of a prefix that differ from line to line."""
_PARTS = frozenset(_VARIABLE.values())
_TIME = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d|\d+:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\d{9,}(?:\.\d+)?"
    rb"|\b(?:" + _MONTHS + rb")[ \t]+\d+\b|\bstd(?:out|err)\b"
)


class Cut(NamedTuple):
    """A line without its prefix."""

    rank: bytes
    """The prefix without times: the same for all lines of a rank."""
    text: bytes


class Prefixes:
    """The prefixes of one file.

    Words of a prefix are taken as they are; numbers, times and levels of severity may vary. So a
    prefix that was learnt from one line is found before all lines of the same rank, and nothing is
    cut off a line without it.
    """

    def __init__(self) -> None:
        self._forms: set[bytes] = set()
        self._any: re.Pattern[bytes] | None = None
        self._table_seen = False

    def learn(self, line: bytes) -> None:
        """Learn what is before a text that begins a line."""
        beginning = _BEGINNING.search(line[: 2 * LONGEST])
        if not beginning:
            return
        self._table_seen = True
        before = line[: beginning.start()]
        if len(before) > LONGEST or len(self._forms) >= MOST_FORMS:
            return
        prefix = before.rstrip(b" \t")
        # Blanks before a comment are the indentation of a post; rows have their own.
        indentation = before[len(prefix) :] if beginning[0].startswith(b"#") else b""
        if not prefix:
            if indentation:
                self._add(indentation)
            return
        known = self._any.match(line) if self._any else None
        if known and known.end() >= len(prefix) + len(indentation):
            return
        if form := _form(prefix):
            # The form takes one blank itself.
            rest = re.escape(indentation[1:])
            self._add(form + b"(?:" + rest + b")?" if rest else form)

    def learn_repeated(self, lines: Iterable[bytes]) -> None:
        """Learn what all of the first lines begin with, if none of them shows where it begins."""
        if self._table_seen:
            return
        # NCCL's own beginning is common to its lines only.
        starts = [PROCESS.split(line[:LONGEST], maxsplit=1)[0] for line in lines if line]
        forms = [_tokens(start) for start in starts[:MOST_FORMS]]
        if len(forms) < FEWEST_LINES:
            return
        columns = itertools.takewhile(
            lambda parts: len(set(parts)) == 1, zip(*forms, strict=False)
        )
        common = [parts[0] for parts in columns]
        # Of comments the sign is common, too; it is no prefix.
        while common and common[-1] in (_VARIABLE["blank"], re.escape(b"#")):
            common.pop()
        if common and re.search(rb"[A-Za-z|:>)\]]", b"".join(set(common) - _PARTS)):
            self._add(_whole(common, alone=b""))

    def _add(self, form: bytes) -> None:
        if form not in self._forms:
            self._forms.add(form)
            # A collector's prefix can be before a launcher's: the longer one is tried first.
            longest_first = sorted(self._forms, key=lambda form: len(bytes(form)), reverse=True)
            self._any = re.compile(b"|".join(longest_first))

    def cut(self, line: bytes) -> Cut:
        """Return a line without its prefix."""
        match = self._any.match(line) if self._any else None
        if match is None:
            match = _COMMON.match(line)
        if match is None or not match.end():
            return Cut(b"", line)
        return Cut(_TIME.sub(b"", match[0]).strip(), line[match.end() :])


def _form(prefix: bytes) -> bytes:
    """Return a regular expression for a prefix and those of other lines; empty if too general."""
    if prefix.isdigit() and len(prefix) < 10:
        return b""  # no epoch: it could be the first column of a table
    return _whole(_tokens(prefix), alone=rb"(?![^ \t])" if prefix[-1:].isalnum() else b"")


def _whole(tokens: Iterable[bytes], *, alone: bytes) -> bytes:
    return rb"[ \t]*" + b"".join(tokens) + alone + rb"[ \t]?"


def _tokens(text: bytes) -> Iterator[bytes]:
    """Yield regular expressions for the words of a text and like ones."""
    for token in _TOKEN.finditer(text):
        yield _VARIABLE.get(token.lastgroup or "") or re.escape(token[0])
