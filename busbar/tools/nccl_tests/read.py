# SPDX-License-Identifier: MIT
"""Reads tables of nccl-tests and rccl-tests, whole or cut up by log lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from busbar.engine.job_output import JobOutput, OutOfBounds
from busbar.engine.reading import Evidence, Reading
from busbar.engine.runs import Runs
from busbar.engine.tool import TableReader
from busbar.parse import numbers
from busbar.parse.text import decode
from busbar.tools.nccl_tests import options, parse
from busbar.tools.nccl_tests.parse import PATTERNS

TOOL_NAME = "nccl-tests"
_UNITS = ("(us)", "(GB/s)", "(GB/s)")
_MOST_STARTS = 8
_ROW = r"\d[ \t]+(?:u?int\d|fp\d|f\d|bfloat\d|half|float|double)"


@dataclass
class NcclTable:
    """What nccl-tests prints beside its rates."""

    rows: list[tuple[parse.NcclRow, Evidence]] = field(default_factory=list)
    parameters: tuple[options.Parameters, Evidence] | None = None
    """How the tool says that it measures."""
    average: float | None = None
    """The mean of all bus bandwidths, in GB/s; NaN for what is not a number."""


def rows_of(facts: JobOutput) -> list[tuple[parse.NcclRow, Evidence]]:
    """Return the rows of an output, each with its line."""
    return facts.part(NcclTable).rows


class _Pending(NamedTuple):
    starts: tuple[str, ...]
    """What the beginning of the row can be."""
    first: int
    last: int
    """Numbers of its lines."""


class NcclReader(TableReader):
    """Reads the table of one file."""

    triggers = parse.TRIGGERS
    row_triggers = (_ROW,)
    row_line = rb"[ \t]*\d+[ \t]+\d*" + _ROW.encode() + rb"[0-9a-zNA/.+ \t-]*"

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs)
        self._pending: dict[bytes, _Pending] = {}
        """By rank: the beginning of a row."""
        self._header = False
        """Inside the header of a table, which spans several lines."""
        self._errors = False
        """Whether the table prints errors instead of counts of wrong elements."""

    @property
    def row_is_cut(self) -> bool:
        return bool(self._pending)

    def comment(self, number: int, text: str) -> bool:
        facts, evidence = self.run, Evidence(self.runs.file, number, text)
        # The most frequent ones are first: some logs hold thousands of tables.
        if device := parse.parse_device(text):
            self._begin(evidence)
            self.run.note_device(device)
        elif bounds := parse.parse_out_of_bounds(text):
            said = (facts.out_of_bounds, OutOfBounds(*bounds, evidence))
            facts.out_of_bounds = min(filter(None, said), key=lambda each: each.okay)
            facts.finished, facts.tool = facts.finished or evidence, facts.tool or TOOL_NAME
        elif average := PATTERNS["average"].match(text):
            facts.finished = evidence
            facts.part(NcclTable).average = numbers.real_or_nan(average["gb_per_s"])
        elif version := PATTERNS["version"].match(text):
            self._begin(evidence)
            versions = version.groupdict("")
            self.run.version = versions.pop("tests")
            self.run.note_message("tests.nccl", evidence, versions)
        elif parameters := options.parse_parameters(text):
            self._begin(evidence)
            self.run.max_bytes = parameters["max_bytes"]
            self.run.part(NcclTable).parameters = parameters, evidence
        elif most := options.parse_reduced(text):
            facts.max_bytes = most
        elif columns := PATTERNS["columns"].match(text):
            self._errors = columns["last"] == "error"
        elif units := parse.parse_units(text):
            self._check_units(units, evidence)
        elif started := PATTERNS["collective"].match(text):
            facts.names.append((started["program"].removesuffix("_perf"), evidence))
        else:
            return False
        return True

    def _check_units(self, units: set[tuple[str, ...]], evidence: Evidence) -> None:
        for wrong in units - {_UNITS}:
            words = f"the table is in {' '.join(wrong)}, the tool prints {' '.join(_UNITS)}"
            self.run.note_contradiction(words, evidence)

    def _begin(self, evidence: Evidence) -> None:
        """Begin a table with the first line of its header."""
        facts = self.run
        failed = facts.first("tests.failure") is not None
        if self._header and self.runs.table is self and not failed:
            if "nThread" in evidence.text and self.run.max_bytes:
                self.run.launches.append(evidence)
            return
        if facts.tool and (facts.readings or facts.finished or failed):
            if self._alone():
                facts.max_bytes = None  # the next line of this header is not of yet another
            else:
                facts = self.runs.begin()
        facts.tool = TOOL_NAME
        facts.table_seen = True
        facts.launches.append(evidence)
        self.runs.begin_table(self)
        self._header = True

    def _alone(self) -> bool:
        """Whether the last table is from a separate process, one of several of a launch."""
        facts = self.run
        requested = facts.commands[-1][0].ranks if facts.commands else None
        ranks = {device.rank for device in facts.devices.values()}
        return facts.tool == TOOL_NAME and ranks == {0} and requested != 1

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        first = line.lstrip()[:1]
        if first == b"O":  # Markdown takes the ``#`` of the closing line
            return self.comment(number, decode(line))
        is_number = first.isdigit() or (self._pending and first in b"N-.")
        if is_number and not self.runs.plain_rows and self._row(number, decode(line), key):
            return True
        if b"GPU" in line or b"ailure" in line:  # what the tests say instead of a table
            evidence = Evidence(self.runs.file, number, decode(line, 300))
            if failure := PATTERNS["failure"].search(evidence.text):
                self.run.note_message("tests.failure", evidence, {"text": failure[0]})
        return False  # it can be a library's message, too

    def _row(self, number: int, text: str, key: bytes) -> bool:
        evidence = Evidence(self.runs.file, number, text)
        if key not in self._pending and len(self._pending) == 1:
            key = next(iter(self._pending))  # a prefix with a counter names no rank
        pending = self._pending.pop(key, None)
        if pending and PATTERNS["numbers"].match(text):
            rows = tuple(r for start in pending.starts for r in parse.joined(start, text))
            # The line that ends the row is the one that holds its rates.
            if not any(self._whole_row(row, evidence) for row in rows):
                self._pending[key] = _Pending(rows[:_MOST_STARTS], pending.first, number)
            return True
        if self._whole_row(text, evidence):
            return True
        start = bool(PATTERNS["row-start"].match(text))
        if start:
            self._pending[key] = _Pending((text.strip(),), number, number)
        elif pending:
            self._pending[key] = pending
        return start

    def _whole_row(self, text: str, evidence: Evidence) -> bool:
        """Take a whole row; of half of one, the numbers in place are still to come."""
        row = parse.parse_row(text, errors=self._errors)
        if row is None or row.in_place is None:
            return False
        facts = self.run
        last = facts.readings[-1].evidence if facts.readings and facts.tool == TOOL_NAME else None
        if last and facts.finished and last.line < facts.finished.line and not self._alone():
            facts = self.runs.begin()  # of a table whose header was left out
        if not facts.tool:
            facts.tool, facts.table_seen = TOOL_NAME, True
        self._header = False
        if facts.full:
            facts.dropped_from = facts.dropped_from or evidence
        else:
            add_row(facts, row, evidence)
        return True

    def end_of_file(self, last: int) -> None:
        """Note a row that is unfinished in the ``last`` line, which has no newline.

        A row that lacks its end before other lines was left out by whoever posted the table.
        """
        for pending in self._pending.values():
            if pending.last == last:
                self.run.pending = Evidence(self.runs.file, pending.first, pending.starts[-1])


def add_row(
    facts: JobOutput, row: parse.NcclRow, evidence: Evidence, in_place: Evidence | None = None
) -> None:
    """Add both halves of a row as readings; ``in_place`` is the line of the second half, if it
    has one of its own."""
    rows_of(facts).append((row, evidence))
    for half, second in ((row.out_of_place, False), (row.in_place, True)):
        if half is None:
            continue
        wrong = half.wrong or 0
        line = in_place if second and in_place else evidence
        facts.readings += [
            Reading("busbw", row.nbytes, half.busbw, wrong, line, in_place=second),
            Reading("algbw", row.nbytes, half.algbw, wrong, line, in_place=second),
        ]
