# SPDX-License-Identifier: MIT
"""The lines around the one that is being read, and what a job script prints of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from busbar.engine.job_output import ExitStatus
from busbar.engine.runs import Runs
from busbar.parse import launch
from busbar.parse.mentions import INTRODUCED, is_introduced
from busbar.parse.severe import excuses
from busbar.parse.tables import beside
from busbar.parse.text import decode

_MOST_RECENT = 40
"""Lines before the end of a run in which its reason is searched."""
_BEFORE, _AFTER = 20, 32
"""Lines around a message that can name what it is about."""
_LONGEST_LINE = 1024
_MOST_CONTINUED = 64
_COMPLAINT, _PLACE = (
    re.compile(beside(__file__)[name].encode()) for name in ("complaint", "place")
)
_NO_COMPLAINT = {"none", "setting", "help", "record"}
_RULE = re.compile(rb"-{60}")
_LONGEST_BOX = 40
_PLACE_AFTER = 16


class Recent:
    """The block of lines that is being read, and the last lines before it."""

    def __init__(self) -> None:
        self._first = 1
        self._text = b""
        self._split: list[bytes] | None = None
        self._asked, self._introduces = 0, False
        """The line that `introduces` was asked about last, and its answer."""

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
            if _COMPLAINT.search(line) and _NO_COMPLAINT.isdisjoint(excuses(line)):
                return number, line
        return None

    def before(self, number: int, count: int) -> list[bytes]:
        """Return up to ``count`` lines before a line, if still in memory."""
        at = number - self._first
        return [line[:_LONGEST_LINE] for line in self._lines[max(0, at - count) : at]]

    def _after(self, number: int, count: int) -> list[bytes]:
        """Return up to ``count`` lines after a line."""
        start = number - self._first + 1
        return [line[:_LONGEST_LINE] for line in self._lines[start : start + count]]

    def introduces(self, number: int) -> bool:
        """Return whether the lines before one say that it is an example."""
        if number != self._asked:  # a line can have several messages
            before = [decode(line) for line in self.before(number, INTRODUCED)]
            self._asked, self._introduces = number, is_introduced(before)
        return self._introduces

    def around(self, number: int) -> list[tuple[int, bytes]]:
        """Return a line and those around it, with their numbers: itself, what follows, what was
        before it from the nearest on."""
        at, end = number - self._first, len(self._lines)
        order = [
            *range(at, min(at + _AFTER + 1, end)),
            *range(at - 1, max(at - _BEFORE, 0) - 1, -1),
        ]
        return [(self._first + each, self._lines[each][:_LONGEST_LINE]) for each in order]

    def place(self, number: int) -> tuple[int, bytes] | None:
        """Return number and text of the line of a help text that names the node of a message."""
        for at, line in enumerate(self._after(number, _PLACE_AFTER), number + 1):
            if _RULE.search(line):
                return None
            if _PLACE.search(line):
                return at, line
        return None

    def box(self, number: int) -> list[bytes]:
        """Return the lines of a help text that begins after a rule; none if no rule ends it."""
        lines = self._after(number, _LONGEST_BOX)
        end = next((at for at, line in enumerate(lines) if _RULE.search(line)), 0)
        return lines[:end]

    def continued(self, number: int) -> Iterator[bytes]:
        """Yield the lines that go on with a command line, which ends in a backslash."""
        start = number - self._first + 1
        for line in self._lines[start : start + _MOST_CONTINUED]:
            yield line[:_LONGEST_LINE]
            if not line.endswith(b"\\"):
                return


def read_shell(runs: Runs, recent: Recent, number: int, line: bytes) -> None:
    """Note the exit status, the variable or the command in a line; these can begin a run."""
    text, run = decode(line), runs.current
    evidence = runs.evidence(number, line)
    status = launch.parse_exit_status(text)
    if status is not None:
        if run.exit_status is None or run.exit_status.code == 0:
            run.exit_status = ExitStatus(status, evidence)
        return
    exported = launch.parse_export(text)
    if not exported and text.endswith("\\"):
        text = " ".join((text, *map(decode, recent.continued(number))))
    command = None if exported else launch.parse_command(text)
    if not (exported or command):
        return
    if run.exit_status or (run.readings and (command or (exported and exported.by_shell))):
        run = runs.begin()
    if exported:
        run.note_setting(exported.name, exported.value, evidence)
    if command:
        run.commands.append((command, evidence))
        for name, value in command.environment.items():
            run.note_setting(name, value, evidence)
