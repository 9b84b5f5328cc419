# SPDX-License-Identifier: MIT
"""The runs in one file, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import re2

from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence
from busbar.engine.shapes import Shapes
from busbar.parse.text import decode

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
        """Note the first line that is not read since there are too many runs."""
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
