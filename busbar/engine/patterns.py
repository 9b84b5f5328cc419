# SPDX-License-Identifier: MIT
"""All patterns, the texts that select the lines for the parsers, and help texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any

from busbar.engine.recent import Recent
from busbar.engine.tables import reader_types
from busbar.parse import events, launch, nccl_log, nvidia_smi, severe, ucx_log
from busbar.parse.messages import Message, Pattern, match, search, table
from busbar.parse.prefix import Prefixes
from busbar.parse.triggers import Triggers, literal


class Role(Enum):
    """Lines that a function reads instead of a pattern."""

    INFO = auto()
    WARNING = auto()
    VERSION = auto()
    BEGINNING = auto()
    """Of a table, or of an event."""
    ROW = auto()
    """Of a table, or a reading."""
    SHELL = auto()
    PROCESS = auto()
    ENDPOINT = auto()
    REPORT = auto()
    RULE = auto()
    """Before and after a help text."""


BEGINNINGS = (Role.BEGINNING, Role.ROW, Role.SHELL)
"""Lines whose beginning shows where a prefix ends. A line with one has it as the first owner."""

_TRIGGERS: dict[Role, tuple[str, ...]] = {
    # The first three are those of BEGINNINGS; tools add theirs to the first two.
    Role.BEGINNING: events.TRIGGERS,
    Role.ROW: (events.READING_TRIGGER,),
    Role.SHELL: launch.TRIGGERS,
    Role.INFO: (literal(nccl_log.INFO.decode()),),
    Role.WARNING: (literal(nccl_log.WARN.decode()),),
    Role.VERSION: ("CCL version",),
    Role.PROCESS: ucx_log.TRIGGERS,
    Role.ENDPOINT: ucx_log.ENDPOINT_TRIGGERS,
    Role.REPORT: nvidia_smi.TRIGGERS,
    Role.RULE: ("-{60}",),
}
_NUMBER_AT_END = r"(?m:(?:[0-9.]|N/A)[ \t]*$)"


_READING_LINE = rb'\{"event": "reading", [^{}\n]*"wrong": 0(?:, [^{}\n]*)?\}'
"""A reading of our own programs whose data was right."""


def _triggers(rows: Sequence[Pattern], roles: Sequence[tuple[str, Role]] = ()) -> Triggers[Any]:
    """Return what finds the lines of patterns, and of roles."""
    words = [literal(row.needle.decode()) or severe.TRIGGERS[row.kind] for row in rows]
    return Triggers([*roles, *zip(words, rows, strict=True)], {row: row.loosened for row in rows})


class Patterns:
    """The patterns of the parsers, and ``more``."""

    def __init__(self, more: Sequence[Pattern] = ()) -> None:
        own = (*nccl_log.TABLE, *(row for row in more if row.info))
        self.warnings: tuple[Pattern, ...] = own
        """For what follows ``NCCL WARN``."""
        self._warning_triggers = _triggers(own)
        self.by_head: dict[bytes, tuple[Pattern, ...]] = {}
        """For what follows ``NCCL INFO``, by its first four bytes or its first byte."""
        plugin = table("ofi")
        for row in (*own, *plugin):
            for head in row.info:
                self.by_head[head] = (*self.by_head.get(head, ()), row)
        self.unprefixed: tuple[Pattern, ...] = (
            *ucx_log.TABLE,
            *plugin,
            *launch.TABLE,
            *nvidia_smi.TABLE,
            *(row for reader in reader_types() for row in reader.messages),
            *(row for row in more if not row.info),
            *severe.PATTERNS,
        )
        """For lines without a prefix of NCCL."""
        self.in_context = frozenset(row.kind for row in (*own, *self.unprefixed) if row.in_context)
        """Kinds of messages with which the lines around them are kept."""
        readers = reader_types()
        of_tools = {
            Role.BEGINNING: [text for reader in readers for text in reader.triggers],
            Role.ROW: [text for reader in readers for text in reader.row_triggers],
        }
        roles = [
            (text, role)
            for role, texts in _TRIGGERS.items()
            for text in (*of_tools.get(role, ()), *texts)
        ]
        self.triggers: Triggers[Pattern | Role] = _triggers(self.unprefixed, roles)
        self.any = self.triggers.searcher()
        self.unclear = frozenset(row for row in severe.PATTERNS if row.kind == severe.UNCLEAR)
        """They count only after the results of a benchmark."""
        self.any_before_results = self.triggers.searcher(without=self.unclear)
        plain = [reader.plain_row_trigger for reader in readers if reader.plain_row_trigger]
        self.any_or_row = self.triggers.searcher(*plain)
        self.row_lines = [_READING_LINE, *(each.row_line for each in readers if each.row_line)]
        """Lines with a row and nothing else."""
        self.any_or_number = self.triggers.searcher(_NUMBER_AT_END)
        self.any_but_rows = self.triggers.searcher(without=[Role.ROW])

    def warning(self, text: bytes) -> Iterator[Message]:
        """Yield the messages in what follows ``NCCL WARN``."""
        return match(self._warning_triggers.of(text), text)


@cache
def patterns(more: tuple[Pattern, ...] = ()) -> Patterns:
    """Return the patterns of the parsers and ``more``."""
    return Patterns(more)


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
        """Yield the messages that span several lines of a paragraph after a rule.

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
