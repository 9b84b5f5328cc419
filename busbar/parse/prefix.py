# SPDX-License-Identifier: MIT
"""What launchers and log collectors write before each line, learnt from the lines themselves."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from busbar.parse.nccl_log import PROCESS
from busbar.parse.tables import beside

LONGEST = 400
"""Bytes of the longest prefix: names of a pod, a container and a host, and two times."""
FEWEST_LINES = 3
"""Lines that show a prefix by having it in common."""
MOST_FORMS = 64
"""Forms of a prefix kept of one file: of the ranks that print a table."""

_TABLES = beside(__file__)
_COMMON, _BEGINNING, _TOKEN, _TIME = (
    re.compile(_TABLES[name].encode()) for name in ("common", "beginning", "token", "time")
)
_VARIABLE = {name: part.encode() for name, part in _TABLES["variable"].items()}
"""Parts of a prefix that differ from line to line."""
_PARTS = frozenset(_VARIABLE.values())


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
        if self._table_seen and line[:1] in (b"#", b"{"):
            return  # nothing is
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
        # Comments also share their sign, which is not a prefix.
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
