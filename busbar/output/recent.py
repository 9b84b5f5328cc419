# SPDX-License-Identifier: MIT
"""The lines around the one that is being read."""

from __future__ import annotations

import re
from collections.abc import Iterator

_MOST_RECENT = 40
"""Lines before the end of a run in which its reason is searched."""
_BEFORE, _AFTER = 20, 32
"""Lines around a message that can name what it is about."""
_LONGEST_LINE = 1024
_MOST_CONTINUED = 64
_COMPLAINT = re.compile(
    rb"(?i)error|fail|fatal|cannot|can't|unable|abort|denied|refused|no such|not found|invalid"
    rb"|killed|timed out|exception|warn|illegal|unreachable|exceeded|unexpected|corrupt"
)
_NO_COMPLAINT = re.compile(rb"(?i)no errors?\b|\b0 errors?\b|errors?\s*[:=]?\s*0\b|without error")
"""What healthy output says of errors."""


class Recent:
    """The block of lines that is being read, and the last lines before it."""

    def __init__(self) -> None:
        self._first = 1
        self._text = b""
        self._split: list[bytes] | None = None

    def add(self, number: int, block: bytes) -> None:
        """Go on to a block whose first line has the given number."""
        before = self._text.rsplit(b"\n", _MOST_RECENT)[-_MOST_RECENT:] if self._text else []
        self._first = number - len(before)
        self._text = b"\n".join([*before, block])
        self._split = None

    @property
    def end(self) -> int:
        """The number of the line after the last."""
        return self._first + len(self._lines)

    @property
    def _lines(self) -> list[bytes]:
        if self._split is None:
            self._split = self._text.split(b"\n")
        return self._split

    def complaint(self, end: int) -> tuple[int, bytes] | None:
        """Return number and text of the nearest line before ``end`` that complains."""
        for number in range(end - 1, max(self._first, end - _MOST_RECENT) - 1, -1):
            line = self._lines[number - self._first][:_LONGEST_LINE]
            if _COMPLAINT.search(line) and not _NO_COMPLAINT.search(line):
                return number, line
        return None

    def around(self, number: int) -> list[tuple[int, bytes]]:
        """Return a line and those around it, with their numbers: itself, what follows, what was
        before it from the nearest on."""
        at, end = number - self._first, len(self._lines)
        order = [
            *range(at, min(at + _AFTER + 1, end)),
            *range(at - 1, max(at - _BEFORE, 0) - 1, -1),
        ]
        return [(self._first + each, self._lines[each][:_LONGEST_LINE]) for each in order]

    def continued(self, number: int) -> Iterator[bytes]:
        """Yield the lines that go on with a command line, which ends in a backslash."""
        start = number - self._first + 1
        for line in self._lines[start : start + _MOST_CONTINUED]:
            yield line[:_LONGEST_LINE]
            if not line.endswith(b"\\"):
                return
