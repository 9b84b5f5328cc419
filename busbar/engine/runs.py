# SPDX-License-Identifier: MIT
"""The runs in one file, in order, and the lines that a program repeats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import re2

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.parse.text import decode
from busbar.parse.triggers import options

_FREE_LINES = 1 << 13
"""Messages of a run that are all read: only logs that repeat themselves have more."""
_MOST_ALIKE = 64
"""Further lines of one shape that are read."""
_MOST_OF_A_TEXT = 1 << 12
"""Lines that are read of one text, whatever numbers are in it: as many as are kept of a kind."""
_MOST_SHAPES = 10_000
_LONGEST = 1024
_LONG_NUMBER = re.compile(rb"(?:0x[0-9a-f]{5,}|[0-9]{5,})")
"""A number without meaning, unlike a code, rank or size: a process ID, an address, a time."""
_NUMBER = re.compile(rb"(?:0x[0-9a-f]+|[0-9]+)")
_MOST_SKIPPED = 64
_MIN_WORN = 64
"""Lines that are worn one by one before lines like them are skipped."""


class Shapes:
    """Counts the messages of a run by their shape: the text and its short numbers."""

    def __init__(self) -> None:
        self._nlines = 0
        self._shape = b""
        """Of the line that `is_worn` was asked about last."""
        self._text = b""
        """The same without any number."""
        self._counts: dict[bytes, int] = {}
        self._texts: dict[bytes, int] = {}
        self.worn: set[bytes] = set()
        """Texts that were found to be worn: most lines of a log repeat one to the letter."""
        self._hits: dict[bytes, int] = {}
        self._skipped: list[bytes] = []
        self.skip: re2.Expression | None = None
        """Matches lines that are worn, each with its end."""

    def is_worn(self, line: bytes) -> bool:
        """Return whether enough similar messages were read that a line can be dropped."""
        if self._nlines < _FREE_LINES:
            return False
        line = line[:_LONGEST]
        if line in self.worn:
            return True
        self._shape = shape = _LONG_NUMBER.sub(b"", line)
        if self._counts.get(shape, 0) >= _MOST_ALIKE:
            if len(self.worn) < _MOST_SHAPES:
                self.worn.add(line)
            return True
        self._text = text = _NUMBER.sub(b"", shape)
        return self._texts.get(text, 0) >= _MOST_OF_A_TEXT

    def count(self) -> None:
        """Count the line that is not worn: it is a message."""
        self._nlines += 1
        if self._shape:
            _add(self._counts, self._shape)
            _add(self._texts, self._text)

    def skip_like(self, line: bytes, start: int = 0) -> None:
        """Match lines like this one by `skip` if there are many.

        What follows ``start`` is worn. What is before it names the process, which does not matter.
        """
        if len(self._skipped) >= _MOST_SKIPPED or len(line) >= _LONGEST:
            return
        prefix, message = line[:start], line[start:]
        shape = _LONG_NUMBER.sub(b"", message)
        number = _LONG_NUMBER
        if self._counts.get(shape, 0) < _MOST_ALIKE:
            shape, number = _NUMBER.sub(b"", shape), _NUMBER
        shape = _NUMBER.sub(b"", prefix) + shape
        _add(self._hits, shape)
        if self._hits[shape] == _MIN_WORN:
            self.skip_lines(_like(prefix, _NUMBER) + _like(message, number))

    def skip_between(self, text: bytes) -> None:
        """Match lines without a message, too, if they often follow lines that `skip` matches."""
        if text and len(text) < _LONGEST and len(self._skipped) < _MOST_SKIPPED:
            _add(self._hits, text)
            if self._hits[text] == _MIN_WORN:
                self.skip_lines(re.escape(text))

    def skip_lines(self, expression: bytes) -> None:
        """Match lines of an expression by `skip`."""
        if expression not in self._skipped:
            self._skipped.append(expression)
            self.skip = re2.compile(b"(?:(?:" + b"|".join(self._skipped) + b")\n)+", options())


def _like(text: bytes, number: re.Pattern[bytes]) -> bytes:
    return number.pattern.join(re.escape(part) for part in number.split(text))


def _add(counts: dict[bytes, int], key: bytes) -> None:
    if len(counts) >= _MOST_SHAPES and key not in counts:
        counts.clear()
    counts[key] = counts.get(key, 0) + 1


MOST_RUNS = 1024


class Runs:
    """The run that is being read, and those before it in the same file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.current = JobOutput(files=[file])
        self.shapes = Shapes()
        self._past: list[JobOutput] = []
        self.full = False
        """Whether the runs after these are not read."""
        self.table: object = None
        """The reader whose table began last."""
        self.plain_rows = False
        """Whether its rows are two numbers, like much else."""

    def begin_table(self, reader: object, *, plain_rows: bool = False) -> None:
        """Note whose table begins."""
        self.table, self.plain_rows = reader, plain_rows

    def drop(self, number: int, line: bytes) -> None:
        """Record the first line that is not read because there are too many runs."""
        last = self._past[-1]
        last.runs_dropped_from = last.runs_dropped_from or self.evidence(number, line)

    def begin(self) -> JobOutput:
        """Begin a new run, unless the current one has no tool yet."""
        if self.current.tool:
            self._past.append(self.current)
            self.full = len(self._past) >= MOST_RUNS
            self.current = JobOutput(files=[self.file])
            self.shapes = Shapes()
        return self.current

    def unworn(self, number: int, block: bytes) -> Iterable[tuple[int, bytes]]:
        """Return the lines of a block with their numbers, without most of those that are worn."""
        if self.shapes.skip is None:
            return enumerate(block.split(b"\n"), number)
        return self._unworn(number, block)

    def _unworn(self, number: int, block: bytes) -> Iterator[tuple[int, bytes]]:
        start, total = 0, len(block)
        while start < total:
            skip = self.shapes.skip
            if skip and (worn := skip.match(block, start)):
                number += block.count(b"\n", start, worn.end())
                start = worn.end()
            end = block.find(b"\n", start)
            end = total if end < 0 else end
            yield number, block[start:end]
            start = end + 1
            number += 1

    def found(
        self, number: int, block: bytes, searcher: Callable[[], re2.Expression]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a block that a search finds, without most of those that are worn.

        ``searcher`` is asked before each line, since a line can change what is searched next.
        """
        start = skipped = 0
        while start <= len(block) and (found := searcher().search(block, start)):
            begin = block.rfind(b"\n", start, found.start()) + 1 or start
            number += block.count(b"\n", start, begin)
            shapes = self.shapes
            if shapes.skip and (worn := shapes.skip.match(block, begin)):
                if start == skipped:
                    shapes.skip_between(block[start : begin - 1])
                start = skipped = worn.end()
                number += block.count(b"\n", begin, start)
                continue
            end = block.find(b"\n", found.start())
            end = len(block) if end < 0 else end
            yield number, block[begin:end]
            start = end + 1
            number += 1

    def finish(self) -> list[JobOutput]:
        """Return all runs; what follows the last one without being a run is merged into it."""
        if self.full:
            last = self._past[-1]
            last.runs_dropped_from = last.runs_dropped_from or next(
                iter(self.current.launches), None
            )
            return self._past
        if not self._past or self.current.tool:
            return [*self._past, self.current]
        if not self.current.empty:
            self._past[-1].merge_context(self.current)
        return self._past

    def evidence(self, number: int, line: bytes) -> Evidence:
        """Return a line of the file as evidence."""
        return Evidence(self.file, number, decode(line))
