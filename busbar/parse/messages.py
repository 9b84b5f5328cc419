# SPDX-License-Identifier: MIT
"""One-line messages of libraries and launchers: a table of patterns, each with what it means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_TEXT = 4096
"""Bytes of a line that are searched: no message is longer, and a search stays fast."""
LONGEST = 400
"""Characters kept of one value: more is no setting, name or number."""


@dataclass(frozen=True)
class Message:
    """A line that says something: its kind and the values in it."""

    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pattern:
    """``needle`` is in every line that ``regex`` matches; it is looked for first, which is
    cheap."""

    kind: str
    needle: bytes
    regex: re.Pattern[str]


def pattern(kind: str, needle: str, regex: str = "") -> Pattern:
    """A row of a table; without ``regex`` the needle itself is the message."""
    return Pattern(kind, needle.encode(), re.compile(regex or re.escape(needle)))


def match(table: tuple[Pattern, ...], line: bytes, text: str | None = None) -> Iterator[Message]:
    """What ``line`` says by ``table``; ``text`` is the line decoded, where the caller has it."""
    for row in table:
        if row.needle in line:
            if text is None:
                text = line[:LONGEST_TEXT].decode("utf-8", "replace")
            if found := row.regex.search(text):
                yield Message(row.kind, tuple((group or "")[:LONGEST] for group in found.groups()))
