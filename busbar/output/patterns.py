# SPDX-License-Identifier: MIT
"""All patterns, grouped by the kind of line in which they are searched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from busbar.parse import launch, nccl_log, nvidia_smi, ucx_log
from busbar.parse.messages import Message, Pattern, match, table


class Patterns:
    """The patterns of the parsers, and ``more``."""

    def __init__(self, more: Sequence[Pattern] = ()) -> None:
        own = (*nccl_log.TABLE, *(row for row in more if row.info))
        self.warnings: tuple[Pattern, ...] = own
        """For what follows ``NCCL WARN``."""
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
            *(row for row in more if not row.info),
        )
        """For lines without a prefix of NCCL."""
        needles = sorted({re.escape(row.needle) for row in self.unprefixed})
        self._any_needle = re.compile(b"|".join(needles))

    def other(self, line: bytes) -> Iterator[Message]:
        """Yield the messages in a line without a prefix of NCCL."""
        # One search rules out nearly all lines.
        if self._any_needle.search(line):
            yield from match(self.unprefixed, line)


@cache
def patterns(more: tuple[Pattern, ...] = ()) -> Patterns:
    """Return the patterns of the parsers and ``more``."""
    return Patterns(more)
