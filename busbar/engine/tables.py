# SPDX-License-Identifier: MIT
"""Benchmark tables and JSON lines, whole or cut up by log lines."""

from __future__ import annotations

import re
from typing import NamedTuple

from busbar.engine.contradictions import of_event, of_osu_row
from busbar.engine.job_output import (
    MOST_HOSTS,
    MOST_READINGS,
    MOST_VALUES,
    JobOutput,
    OutOfBounds,
)
from busbar.engine.reading import Evidence, Kind, Reading
from busbar.engine.rows import add_row, add_ucx_row
from busbar.engine.runs import Runs
from busbar.parse import events, nccl_options, nccl_tests, osu
from busbar.parse.busy import Busy
from busbar.parse.text import decode

_EVENTS = tuple(beginning.encode() for beginning in events.BEGINNINGS)
_PROGRAM = "gpu_aware"
_COMMENT = re.compile(rb"\s*(?:#(?!\d+\s)|Out of bounds values)")
"""A comment of a table. gdb numbers the frames of a backtrace, and Markdown takes the ``#`` of the
closing line of nccl-tests."""
_LOOKS_LIKE_ROW = re.compile(rb"\s*\d+\s+(?:\d+\s+(?:u?int|fp|float|half|double|bfloat|f8)|\d)")
_KINDS: dict[str, Kind] = {
    "bandwidth": "bw",
    "latency": "latency_us",
    "busbw": "busbw",
}
_MOST_STARTS = 8
_DEVICES = {"host": "host", "cuda": "CUDA", "hip": "ROCM"}


class _Pending(NamedTuple):
    starts: tuple[str, ...]
    """What the beginning of the row can be."""
    first: int
    last: int
    """Numbers of its lines."""


class Tables:
    """Rows of the benchmarks in one file."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._pending: dict[bytes, _Pending] = {}
        """By rank: the beginning of a row."""
        self._banner: osu.Banner | None = None
        self._header = False
        """Inside the header of an nccl-tests table, which spans several lines."""
        self._last_start: events.Start | None = None
        self._errors = False
        """Whether its table prints errors instead of counts of wrong elements."""
        self.repeats = False
        """Whether the last line is one of so many that the run keeps no more of them."""

    @property
    def _facts(self) -> JobOutput:
        return self._runs.current

    @property
    def rows_are_plain(self) -> bool:
        """Whether the next rows are those of OSU: two numbers, like much else."""
        return self._banner is not None

    @property
    def full(self) -> bool:
        """Whether no more readings of the run are kept."""
        return len(self._facts.readings) >= MOST_READINGS

    @property
    def drops_rows(self) -> bool:
        """Whether more rows of the run change nothing."""
        return self.full and self._facts.dropped_from is not None

    @property
    def row_is_cut(self) -> bool:
        """Whether the rest of a row is still to come."""
        return bool(self._pending)

    def line(self, number: int, line: bytes, key: bytes) -> bool:
        """Take a line that belongs to a table; return False for all others."""
        first, self.repeats = line.lstrip()[:1], False
        if first in b"#O" and _COMMENT.match(line):
            self.repeats = self._facts.launches.dropped > 0
            return self._comment(number, decode(line))
        if first == b"{" and line.lstrip().startswith(_EVENTS):
            self._event(number, line)
            return True
        if first == b"F" and b"Final:" in line:
            return add_ucx_row(self._facts, Evidence(self._runs.file, number, decode(line)))
        numbers = first.isdigit() or (self._pending and first in b"N-.")
        if numbers and self._row(number, decode(line), key):
            return True
        if b"GPU" in line or b"ailure" in line or b"requires" in line:
            self._complaint(number, decode(line, 300))
        return False

    def _complaint(self, number: int, text: str) -> None:
        """Note what the tests say instead of a table; it can be a library's message, too."""
        facts, evidence = self._facts, Evidence(self._runs.file, number, text)
        if few := nccl_tests.parse_too_few(text):
            fields = {"requested": str(few.requested), "visible": str(few.visible)}
            facts.note_message("tests.too-few", evidence, fields)
        elif failure := nccl_tests.parse_failure(text):
            facts.note_message("tests.failure", evidence, {"text": failure})
        elif needed := osu.parse_rank_complaint(text):
            facts.tool = facts.tool or "osu"
            facts.note_message("osu.ranks", evidence, {"ranks": needed})
            facts.launches.append(evidence)
            facts.single_starts += 1

    def piece(self, number: int, text: bytes, key: bytes) -> None:
        """Take what precedes a log line on the same line: a part of a row, or nothing of
        ours."""
        if self._banner is None:
            self._row(number, decode(text), key)

    # ---- nccl-tests and OSU
    def _comment(self, number: int, text: str) -> bool:
        evidence = Evidence(self._runs.file, number, text)
        if banner := osu.parse_banner(text):
            self._osu_banner(banner, evidence)
        elif self._banner and (setting := osu.parse_setting(text)):
            self._osu_setting(self._banner, setting, evidence)
        elif buffers := osu.parse_buffers(text):
            self._facts.buffers = buffers
            if "D" in buffers:
                self._facts.device = self._facts.device or "GPU"
        elif "Library version" in text or "API headers version" in text:
            return False  # ucx_info
        else:
            self._nccl_comment(text, evidence)
        return True

    def _nccl_comment(self, text: str, evidence: Evidence) -> None:
        facts = self._facts
        if version := nccl_tests.parse_version(text):
            self._nccl_header(evidence)
            self._facts.version = version.tests
            fields = {"headers": version.headers, "library": version.library}
            self._facts.note_message("tests.nccl", evidence, fields)
        elif parameters := nccl_options.parse_parameters(text):
            self._nccl_header(evidence)
            self._facts.max_bytes = parameters.max_bytes
            self._facts.parameters = parameters, evidence
        elif most := nccl_options.parse_reduced(text):
            facts.max_bytes = most
        elif last := nccl_tests.parse_columns(text):
            self._errors = last == "error"
        elif name := nccl_tests.parse_collective(text):
            facts.names.append((name.removesuffix("_perf"), evidence))
        elif device := nccl_tests.parse_device(text):
            self._nccl_header(evidence)
            self._device(device)
        elif bounds := nccl_tests.parse_out_of_bounds(text):
            facts.out_of_bounds = OutOfBounds(bounds.count, bounds.okay, evidence)
            facts.finished, facts.tool = facts.finished or evidence, facts.tool or "nccl-tests"
        elif nccl_tests.parse_average(text) is not None:
            facts.finished = evidence

    def _device(self, device: nccl_tests.Device) -> None:
        facts = self._facts
        if len(facts.devices) < MOST_HOSTS:
            facts.devices[device.host, device.pid * 1024 + device.device] = device
            facts.hosts.setdefault(device.host)
            facts.processes.add((device.host, device.pid))

    def _osu_banner(self, banner: osu.Banner, evidence: Evidence) -> None:
        facts = self._facts
        again = facts.names and facts.names[0][0] == banner.test and not facts.readings
        if facts.tool and not (again or (facts.tool == "osu" and not facts.readings)):
            facts = self._runs.begin()
        facts.launches.append(evidence)
        facts.tool = banner.test
        facts.version = banner.version
        # These tests print the same title for host and GPU buffers.
        silent = banner.test in ("osu_mbw_mr", "osu_multi_lat")
        by_library = "xccl" in banner.test  # NCCL and RCCL take GPU buffers only
        facts.device = banner.device or ("GPU" if by_library else "" if silent else "host")
        facts.table_seen = True
        facts.names.append((banner.test, evidence))
        self._banner, self._header = banner, False

    def _osu_setting(self, banner: osu.Banner, setting: osu.Setting, evidence: Evidence) -> None:
        self._facts.settings.append((setting, evidence))
        unit = "MB/s" if banner.quantity == "bw" else "us"
        if setting.unit and setting.unit != unit:
            text = f"the table is in {setting.unit}, {banner.test} prints {unit}"
            self._facts.note_contradiction(text, evidence)

    def _nccl_header(self, evidence: Evidence) -> None:
        if self._header:
            if "nThread" in evidence.text and self._facts.max_bytes:
                self._facts.launches.append(evidence)
            return
        facts = self._facts
        if facts.tool and (facts.readings or facts.finished):
            if self._alone():
                facts.max_bytes = None  # the next line of this header is not of yet another
            else:
                facts = self._runs.begin()
        facts.tool = "nccl-tests"
        facts.table_seen = True
        facts.launches.append(evidence)
        self._banner, self._header = None, True

    def _alone(self) -> bool:
        """Whether the last table is of a process that ran alone, one of several of a launch."""
        facts = self._facts
        requested = facts.commands[-1][0].ranks if facts.commands else None
        ranks = {device.rank for device in facts.devices.values()}
        return facts.tool == "nccl-tests" and ranks == {0} and requested != 1

    def _row(self, number: int, text: str, key: bytes) -> bool:
        evidence = Evidence(self._runs.file, number, text)
        if self._banner is not None:
            osu_row = osu.parse_row(text)
            if osu_row is not None:
                self._osu_row(osu_row, evidence)
            return osu_row is not None
        if key not in self._pending and len(self._pending) == 1:
            key = next(iter(self._pending))  # a prefix with a counter names no rank
        pending = self._pending.pop(key, None)
        if pending and nccl_tests.is_numbers(text):
            rows = tuple(r for start in pending.starts for r in nccl_tests.joined(start, text))
            # The line that ends the row is the one that holds its rates.
            if not any(self._nccl_row(row, evidence) for row in rows):
                self._pending[key] = _Pending(rows[:_MOST_STARTS], pending.first, number)
            return True
        if self._nccl_row(text, evidence):
            return True
        start = nccl_tests.is_row_start(text)
        if start:
            self._pending[key] = _Pending((text.strip(),), number, number)
        elif pending:
            self._pending[key] = pending
        return start

    def _osu_row(self, row: osu.Row, evidence: Evidence) -> None:
        facts, banner = self._facts, self._banner
        if banner is None:
            return
        if self.full:
            facts.dropped_from = facts.dropped_from or evidence
            return
        rate = banner.quantity == "bw"
        facts.note_contradiction(of_osu_row(banner, row), evidence)
        facts.readings.append(
            Reading(
                "bw" if rate else "latency_us",
                row.nbytes,
                row.value / 1e3 if rate else row.value,
                wrong=1 if row.valid is False else 0,
                evidence=evidence,
                buffers=facts.buffers,
            )
        )

    def _nccl_row(self, text: str, evidence: Evidence) -> bool:
        """Take a whole row; half of one, with the numbers out of place alone, is still to
        come."""
        row = nccl_tests.parse_row(text, errors=self._errors)
        if row is None or row.in_place is None:
            return False
        facts = self._facts
        if not facts.tool:
            facts.tool, facts.table_seen = "nccl-tests", True
        self._header = False
        if self.full:
            facts.dropped_from = facts.dropped_from or evidence
        else:
            add_row(facts, row, evidence)
        return True

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
            facts.tool = facts.tool or _PROGRAM
        if isinstance(event, events.Reading):
            self._event_reading(event, evidence)
        elif isinstance(event, events.End) or len(facts.events) < MOST_READINGS:
            facts.events.append((event, evidence))
        if isinstance(event, events.End):
            facts.finished = evidence
        elif isinstance(event, events.Place):
            self._place(event)

    def _place(self, place: events.Place) -> None:
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
        self._banner, self._header = None, False
        return facts

    def _event_reading(self, reading: events.Reading, evidence: Evidence) -> None:
        self._facts.note_contradiction(of_event(reading, self._last_start), evidence)
        if self.full and not reading.wrong:
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
        """Note a row that is unfinished in the ``last`` line, which has no newline.

        A row that lacks its end before other lines was left out by whoever posted the table.
        """
        for pending in self._pending.values():
            if pending.last == last:
                text = pending.starts[-1]
                self._facts.pending = Evidence(self._runs.file, pending.first, text)
