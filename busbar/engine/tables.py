# SPDX-License-Identifier: MIT
"""The lines of benchmarks in one file: each tool reads its own, the engine reads events."""

from __future__ import annotations

import re
from functools import cache

from busbar.engine.contradictions import of_event
from busbar.engine.job_output import MOST_READINGS, MOST_VALUES, JobOutput
from busbar.engine.reading import Evidence, Kind, Reading
from busbar.engine.runs import Runs
from busbar.engine.tool import TableReader, early_program, tools
from busbar.parse import events
from busbar.parse.busy import Busy
from busbar.parse.text import decode

_EVENTS = tuple(beginning.encode() for beginning in events.BEGINNINGS)
_COMMENT = re.compile(rb"\s*#(?!\d+\s)")
"""A comment of a table. gdb numbers the frames of a backtrace."""
_KINDS: dict[str, Kind] = {"bandwidth": "bw", "latency": "latency_us", "busbw": "busbw"}
_DEVICES = {"host": "host", "cuda": "CUDA", "hip": "ROCM"}


@cache
def reader_types() -> tuple[type[TableReader], ...]:
    """Return what reads the lines of the tools."""
    return tuple(tool.reader for tool in tools().values() if tool.reader)


class Tables:
    """Rows of the benchmarks in one file."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._readers = [kind(runs) for kind in reader_types()]
        self._last_start: events.Start | None = None
        self.repeats = False
        """Whether the run already has enough lines of the kind of the last one."""

    @property
    def _facts(self) -> JobOutput:
        return self._runs.current

    @property
    def rows_are_plain(self) -> bool:
        """Whether the next rows are two numbers, like much else."""
        return self._runs.plain_rows

    @property
    def drops_rows(self) -> bool:
        """Whether more rows of the run change nothing."""
        return self._facts.full and self._facts.dropped_from is not None

    @property
    def row_is_cut(self) -> bool:
        """Whether the rest of a row is still to come."""
        return any(reader.row_is_cut for reader in self._readers)

    def line(self, number: int, line: bytes, key: bytes) -> bool:
        """Take a line that belongs to a table; return False for all others."""
        first, self.repeats = line.lstrip()[:1], False
        if first == b"#" and _COMMENT.match(line):
            self.repeats = self._facts.launches.dropped > 0
            text = decode(line)
            known = any(reader.comment(number, text) for reader in self._readers)
            # A remark has no messages; ucx_info prints its versions like one.
            return known or not ("Library version" in text or "API headers version" in text)
        if first == b"{" and line.lstrip().startswith(_EVENTS):
            self._event(number, line)
            return True
        return any(reader.row(number, line, key) for reader in self._readers)

    def piece(self, number: int, text: bytes, key: bytes) -> None:
        """Take the text before a log line on the same line, which may be part of a row."""
        if not self._runs.plain_rows:
            self.line(number, text, key)

    # ---- JSON lines of our own programs
    def _event(self, number: int, line: bytes) -> None:
        facts = self._facts
        if len(facts.malformed) >= MOST_VALUES:
            facts.malformed.dropped += 1
            self.repeats = True
            return  # the run is broken, and so is its output
        evidence = Evidence(self._runs.file, number, decode(line))
        try:
            event = events.parse(line)
        except events.MalformedEventError as error:
            if error.cut:
                facts.incomplete = evidence
            facts.malformed.append((str(error), evidence))
            return
        if isinstance(event, events.Start):
            facts = self._start(event, evidence)
        elif not isinstance(event, events.Placed | Busy):
            facts.tool = facts.tool or early_program()
        if isinstance(event, events.ReadingEvent):
            self._event_reading(event, evidence)
        elif isinstance(event, events.End) or len(facts.events) < MOST_READINGS:
            facts.events.append((event, evidence))
        if isinstance(event, events.End):
            facts.finished = evidence
        elif isinstance(event, events.RankPlace):
            self._place(event)

    def _place(self, place: events.RankPlace) -> None:
        self._facts.hosts.setdefault(place.host)
        if isinstance(place, events.Rank):
            self._facts.processes.add((place.host, place.pid))

    def _start(self, start: events.Start, evidence: Evidence) -> JobOutput:
        facts = self._facts
        # A rank can complain before the first one says what was started.
        begun = bool(facts.readings or facts.finished)
        repeated = not begun and (facts.tool == start.program or not facts.launches)
        if facts.tool and not repeated:
            facts = self._runs.begin()
        self._last_start = start
        facts.tool, facts.version = start.program, start.version or None
        facts.table_seen = True
        facts.device = _DEVICES[start.backend]
        facts.launches.append(evidence)
        facts.ranks = start.ranks
        if start.ranks == 1 < start.asked_ranks:
            facts.single_starts += 1
        self._runs.begin_table(None)
        return facts

    def _event_reading(self, reading: events.ReadingEvent, evidence: Evidence) -> None:
        self._facts.note_contradiction(of_event(reading, self._last_start), evidence)
        if self._facts.full and not reading.wrong:
            self._facts.dropped_from = self._facts.dropped_from or evidence
            return
        self._facts.readings.append(
            Reading(
                *(_KINDS[reading.metric], reading.nbytes, reading.value),
                wrong=reading.wrong,
                evidence=evidence,
                source=reading.source,
                target=reading.target,
                buffers=reading.buffers,
                operation=reading.operation,
                driver_us=reading.driver_us,
                memory_gb_per_s=reading.memory_gb_per_s,
                measured_us=reading.measured_us,
                cpu_wait_share=reading.cpu_wait_share,
            )
        )

    def end_of_file(self, last: int) -> None:
        """Note what is unfinished in the ``last`` line, which has no newline."""
        for reader in self._readers:
            reader.end_of_file(last)
