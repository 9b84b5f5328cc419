# SPDX-License-Identifier: MIT
"""The steps in one file: each launch of a program is read apart from all others."""

from __future__ import annotations

from collections.abc import Iterator

from busbar.engine.collector import Collector
from busbar.engine.job_output import UNNAMED, JobOutput
from busbar.engine.patterns import Patterns
from busbar.parse.owners import MOST_STREAMS, Owners, has_streams, has_words, stream_of
from busbar.parse.text import decode

# A benchmark and another program (a training, a script of the site) share a log one after the
# other or line by line. A line shows its program by the row of a table, a process id that the
# table lists, the words of a runtime that no benchmark has, a command line, or the prefix of a log
# collector. A line that shows none of these belongs to the program of the line before.
MOST_STEPS = 64
LONGEST_NAME = 60
"""Bytes of a command by which a step is called."""


class _Step:
    """What reads the lines of one step."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Empty if it is a benchmark, or what comes with one."""
        self.is_program = False
        """Whether it certainly is a different program; otherwise it is one only if it failed."""
        self.first = 0
        """The number of its first line; 0 without one."""
        self._collector: Collector | None = None

    def block(self, number: int, text: bytes, file: str, table: Patterns) -> None:
        self.first = self.first or number
        self._collector = self._collector or Collector(file, table, number)
        self._collector.block(number, text)

    def finish(self) -> Iterator[JobOutput]:
        for facts in self._collector.finish() if self._collector else ():
            apart = not facts.tool and (self.is_program or facts.has_failed)
            facts.step = self.name if apart else ""
            yield facts


class _Stream:
    """The lines before which a collector writes one name, or all lines of a file."""

    def __init__(self, steps: Steps, name: str) -> None:
        self._steps, self._name = steps, name
        self._owners = Owners()
        self._own: _Step | None = steps.begin(name)
        """The benchmarks, which the collector distinguishes."""
        self._other: _Step | None = None
        self._last = self._own

    def block(self, number: int, text: bytes) -> None:
        """Read a block of lines; those of other streams are empty in it."""
        owners = self._owners
        if owners.shows_nothing(text, words=self._other is None):
            self._steps.read(self._last, number, text)
            return
        owners.learn(text)
        if not owners.benchmark and self._other is None and has_words(text):
            # The lines so far belong to another program; a benchmark may follow.
            self._own, self._other = None, self._own
        parts = list(self._parts(text))
        for step in dict.fromkeys(part for part, _ in parts):
            own = b"".join(
                lines if part is step else b"\n" * lines.count(b"\n") for part, lines in parts
            )
            first = len(own) - len(own.lstrip(b"\n")) if len(parts) > 1 else 0
            self._steps.read(step, number + first, own[first:])

    def _parts(self, text: bytes) -> Iterator[tuple[_Step, bytes]]:
        """Yield the pieces of a block with their steps."""
        last = ("own" if self._last is self._own else "other") if self._last.first else ""
        # The lines before the first mark belong to the program that the mark shows.
        begin, step = 0, self._last if last else None
        for at, kind in self._owners.marks(text, last):
            new = self._step(kind, text[at : at + LONGEST_NAME].split(b"\n", 1)[0])
            if step and new is not step and at > begin:
                yield step, text[begin:at]
                begin = at
            step = new
        self._last = step or self._last
        yield self._last, text[begin:]

    def _step(self, kind: str, line: bytes) -> _Step:
        if kind == "own":
            self._own = self._own or self._steps.begin("")
            return self._own
        if self._other is None or kind == "new":
            command = decode(line).lstrip("$+ ") if kind == "new" else ""
            name = command or self._name or UNNAMED
            self._other = self._steps.begin(name)
        self._other.is_program = self._other.is_program or kind != "process"
        return self._other


class Steps:
    """Reads one file block by block, and sorts its lines into steps."""

    def __init__(self, file: str, table: Patterns, first: int = 1) -> None:
        self._file, self._table, self._first = file, table, first
        self._all: list[_Step] = []
        self._streams: dict[bytes, _Stream] = {}
        self._is_split = False

    def begin(self, name: str) -> _Step:
        """Return a new step; the last one goes on if there are too many."""
        if len(self._all) < MOST_STEPS:
            self._all.append(_Step(name))
        return self._all[-1]

    def read(self, step: _Step, number: int, text: bytes) -> None:
        """Read lines of a step."""
        step.block(number, text, self._file, self._table)

    def block(self, number: int, text: bytes) -> None:
        """Read a block of lines, the first of which has the given number."""
        if number == self._first:
            self._is_split = has_streams(text)
        if not self._is_split:
            self._stream(b"").block(number, text)
            return
        last, owned = b"", []
        for line in text.split(b"\n"):
            last = stream_of(line) or last
            owned.append((last, line))
        for name in dict.fromkeys(name for name, _ in owned):
            lines = [line if owner == name else b"" for owner, line in owned]
            first = next(at for at, (owner, _) in enumerate(owned) if owner == name)
            self._stream(name).block(number + first, b"\n".join(lines[first:]))

    def _stream(self, name: bytes) -> _Stream:
        if name not in self._streams:
            if len(self._streams) >= MOST_STREAMS:
                return next(iter(self._streams.values()))
            self._streams[name] = _Stream(self, name.decode("utf-8", "replace"))
        return self._streams[name]

    def finish(self) -> list[JobOutput]:
        """Return the runs and the steps of other programs in the order of their beginnings."""
        ordered = sorted(self._all, key=lambda step: step.first)
        found = [facts for step in ordered for facts in step.finish()]
        return found or [JobOutput(files=[self._file])]
