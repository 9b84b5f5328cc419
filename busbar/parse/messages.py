# SPDX-License-Identifier: MIT
"""One-line messages of libraries and launchers, and the patterns that match them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from busbar.parse.mentions import is_mention
from busbar.parse.tables import load_all

LONGEST_TEXT = 4096
"""Bytes of a line that are searched: no message is longer, and a search stays fast."""
LONGEST = 400
"""Characters kept of one field: no setting, name or number is longer."""
MIN_NEEDLE = 2
_UNNAMED = re.compile(r"(?<!\\)\((?!\?)")
"""A parenthesis that may begin a group without a name, if it is not one of a set."""
_LOOK_AROUND = ("(?!", "(?=", "(?<!", "(?<=")
_PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<?[=!]|.", re.DOTALL)
"""Pieces of an expression: a sign, a set, or what begins a look-around."""
HEAD_BYTES = 4
"""Bytes of the beginning of an INFO message by which its patterns are looked up."""


@dataclass(frozen=True)
class Message:
    """A line that matched a pattern: the kind of message and its fields by name."""

    kind: str
    fields: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.fields[name]


@dataclass(frozen=True, eq=False)
class Pattern:
    """A regular expression for one kind of message; see :func:`pattern`.

    Two patterns are never equal, so that a set of them needs no hash of their parts.
    """

    kind: str
    needle: bytes
    source: str
    info: tuple[bytes, ...] = ()
    anchored: bool = False
    """Whether the message begins its line."""
    in_context: bool = False
    """Whether the lines around it are kept: they name what it is about."""

    excused: Callable[[bytes], bool] | None = None
    """Tells whether a line with the message is harmless."""

    @property
    def loosened(self) -> str:
        """The expression for RE2, which has no look-around: it matches more.

        A message that begins its line can have a prefix.
        """
        kept, depth, skipped = [], 0, 0
        for piece in _PIECES.findall(self.source):
            depth += piece[0] == "("
            if piece in _LOOK_AROUND and not skipped:
                skipped = depth
            if not skipped and not (piece == "^" and self.anchored):
                kept.append(piece)
            elif piece == ")" and depth == skipped:
                skipped = 0
            depth -= piece == ")"
        return "".join(kept)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression; most of the hundreds are not needed for a file."""
        return re.compile(self.source)


def pattern(
    kind: str, needle: str, regex: str = "", *, info: Iterable[str] = (), in_context: bool = False
) -> Pattern:
    """Declare a pattern; without ``regex`` the needle is the whole message.

    Every line that ``regex`` matches contains ``needle``, which is searched first because that
    is cheap. All groups are named: they are the fields of the message.

    ``info`` lists how the message can begin after ``NCCL INFO``: the first four bytes, or the
    first byte. A pattern without it is not searched in INFO lines, which are nearly all lines
    of a large log.
    """
    new = Pattern(
        kind,
        needle.encode(),
        regex or re.escape(needle),
        tuple(head.encode() for head in info),
        regex.startswith("^"),
        in_context,
    )
    if _UNNAMED.search(regex) and new.regex.groups != len(new.regex.groupindex):
        raise ValueError(f"pattern {kind!r}: every group needs a name: {regex}")
    if any(len(head) not in (1, HEAD_BYTES) for head in new.info):
        raise ValueError(f"pattern {kind!r}: a head has 1 or {HEAD_BYTES} bytes: {new.info}")
    if len(needle) < MIN_NEEDLE:
        raise ValueError(f"pattern {kind!r}: the needle {needle!r} is in too many lines")
    return new


@cache
def _tables() -> dict[str, tuple[Pattern, ...]]:
    return {
        name: tuple(pattern(**row) for row in rows)
        for tables in load_all(Path(__file__).with_name("messages.yaml"))
        for name, rows in tables.items()
    }


def table(library: str) -> tuple[Pattern, ...]:
    """Return the patterns of one part of a ``messages.yaml``."""
    return _tables()[library]


def match(patterns: Iterable[Pattern], line: bytes) -> Iterator[Message]:
    """Yield the messages of ``patterns`` that ``line`` contains."""
    for row in patterns:
        if row.needle in line and (message := search(row, line)):
            yield message


def search(row: Pattern, line: bytes) -> Message | None:
    """Return the message of a pattern in a line that contains its needle."""
    line = line[:LONGEST_TEXT]
    if row.excused and row.excused(line):
        return None
    found = row.regex.search(line.decode("utf-8", "replace"))
    if not found or is_mention(found, row.needle.decode()):
        return None
    fields = found.groupdict("").items()
    return Message(row.kind, {name: value[:LONGEST] for name, value in fields})
