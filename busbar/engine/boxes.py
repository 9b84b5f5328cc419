# SPDX-License-Identifier: MIT
"""Help texts between rules, whose lines versions of a program break at other words."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.patterns import Role
from busbar.engine.recent import Recent
from busbar.parse.messages import Message, Pattern, search
from busbar.parse.prefix import Prefixes
from busbar.parse.triggers import Triggers

MOST_BOXES = 256
"""Help texts of a file that are read as a whole."""


class Boxes:
    """The help texts of a file."""

    def __init__(self, recent: Recent, prefixes: Prefixes) -> None:
        self._recent = recent
        self._prefixes = prefixes
        self._count = 0
        self._end = 0

    def messages(
        self, number: int, triggers: Triggers[Pattern | Role]
    ) -> Iterator[tuple[int, bytes, Message]]:
        """Yield the messages of paragraphs after a rule that none of their lines has alone.

        Each comes with the number of its first line and with its paragraph as one line.
        """
        for first, lines in self._paragraphs(number):
            whole = b" ".join(lines)
            for owner in triggers.of(whole):
                if not isinstance(owner, Pattern) or any(search(owner, line) for line in lines):
                    continue
                if found := search(owner, whole):
                    yield first, whole, found

    def _paragraphs(self, number: int) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the paragraphs after a rule that begins a box, each with its first number."""
        if number == self._end or self._count >= MOST_BOXES:
            return
        self._count += 1
        lines = self._recent.box(number)
        self._end = number + len(lines) + 1
        cut = [self._prefixes.cut(line).text.strip() for line in lines]
        start = 0
        while start < len(cut):
            end = next((at for at in range(start, len(cut)) if not cut[at]), len(cut))
            if end > start + 1:
                yield number + 1 + start, cut[start:end]
            start = end + 1
