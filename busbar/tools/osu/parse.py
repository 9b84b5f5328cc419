# SPDX-License-Identifier: MIT
"""The output of OSU micro-benchmarks 5.x to 7.x: titles and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass

from busbar.engine.contradictions import agrees, half_unit
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Evidence, Reading
from busbar.engine.runs import Runs
from busbar.engine.tool import TableReader
from busbar.parse import numbers
from busbar.parse.tables import beside
from busbar.parse.text import decode


@dataclass(frozen=True)
class OsuBanner:
    """The title line of a test, as in ``# OSU MPI-CUDA Bandwidth Test v7.4``."""

    test: str
    """Name of the program: ``osu_bw``, ``osu_allreduce``."""
    version: str
    device: str
    """``CUDA``, ``ROCM``, ``OPENACC``...; empty for host buffers on both sides."""
    quantity: str
    """``bw`` in MB/s of 1e6 bytes, or ``latency_us``."""


@dataclass(frozen=True)
class OsuRow:
    """One size of a table."""

    nbytes: int
    value: float
    """In the unit of the table's column."""
    valid: bool | None = None
    """The verdict of ``-c``; None without it."""
    others: tuple[float, ...] = ()
    """The further columns: message rate, smallest and largest latency."""
    whole: bool = False
    """Whether the value has no decimals."""


_TABLES = beside(__file__)
PATTERNS = {name: re.compile(words) for name, words in _TABLES["expressions"].items()}
_SETTINGS = [*map(re.compile, _TABLES["settings"])]
PAIRS = ("osu_bw", "osu_bibw", "osu_latency")
"""Tests that refuse another number of ranks than two."""
SILENT = ("osu_mbw_mr", "osu_multi_lat")
"""These print the same title for buffers of the host and of GPUs."""
_GPU_LIBRARIES = ("NCCL", "RCCL", "xCCL")


def parse_banner(line: str) -> OsuBanner | None:
    """The title of a test, or None for any other line."""
    match = PATTERNS["banner"].match(line)
    if not match:
        return None
    title = re.sub(r"(?<!\s)\s++test$", "", match["title"].strip().lower())
    test = _TABLES["titles"].get(title)
    if test is None:
        test = "osu_" + re.sub(r"\W+", "_", title.removesuffix(" latency")).strip("_")
    if match["api"] in _GPU_LIBRARIES:
        test = test.replace("osu_", "osu_xccl_", 1)
    rate = "bandwidth" in title
    return OsuBanner(test, match["version"], match["device"] or "", "bw" if rate else "latency_us")


def parse_row(line: str) -> OsuRow | None:
    """A row of a table; the first value is the average or the bandwidth."""
    row = PATTERNS["row"].match(line)
    if not row:
        return None
    valid = row["check"].lower() == "pass" if row["check"] else None
    words = row["values"].split()
    first, others = numbers.real(words[0]), tuple(map(numbers.real_or_nan, words[1:]))
    if first is None:
        return None
    return OsuRow(numbers.count(row["nbytes"]), first, valid, others, words[0].isdigit())


def parse_setting(line: str) -> dict[str, str] | None:
    """Return the ``unit`` of the first column, the ``datatype``, or ``pairs`` and ``window``.

    None for any line that is not between the title and the table.
    """
    found = (match for pattern in _SETTINGS if (match := pattern.match(line)))
    return next((match.groupdict() for match in found), None)


class OsuReader(TableReader):
    """Reads tables; a row is two numbers, so it counts only after a title."""

    triggers = (r"#[ \t]*(?:OSU|Size|Datatype|\[)", "Send Buffer on", "This test requires")
    plain_row_trigger = (
        r"(?mi:[0-9][ \t]+-?(?:[0-9][0-9.]*|nan|inf)(?:[ \t]+(?:pass|fail))?[ \t]*$)"
    )

    def __init__(self, runs: Runs) -> None:
        super().__init__(runs)
        self._banner: OsuBanner | None = None
        self._columns: list[str] = []

    def comment(self, number: int, text: str) -> bool:
        evidence = Evidence(self.runs.file, number, text)
        banner = self._banner if self.runs.table is self else None
        if title := parse_banner(text):
            self._title(title, evidence)
        elif banner and (setting := parse_setting(text)):
            self.run.settings.append((setting, evidence))
            if columns := PATTERNS["columns"].match(text):
                self._columns = PATTERNS["between_columns"].split(columns["names"].strip())
            unit = "MB/s" if banner.quantity == "bw" else "us"
            if setting.get("unit", unit) != unit:
                wrong = f"the table is in {setting['unit']}, {banner.test} prints {unit}"
                self.run.note_contradiction(wrong, evidence)
        elif buffers := PATTERNS["buffers"].match(text):
            self.run.buffers = f"{buffers['send']} {buffers['receive']}"
            if "D" in self.run.buffers:
                self.run.device = self.run.device or "GPU"
        else:
            return False
        return True

    def _title(self, banner: OsuBanner, evidence: Evidence) -> None:
        facts = self.run
        again = facts.names and facts.names[0][0] == banner.test and not facts.readings
        if facts.tool and not (again or (facts.tool == "osu" and not facts.readings)):
            facts = self.runs.begin()
        facts.launches.append(evidence)
        facts.tool = banner.test
        facts.version = banner.version
        by_library = "xccl" in banner.test  # NCCL and RCCL take GPU buffers only
        silent = "GPU" if by_library else "" if banner.test in SILENT else "host"
        facts.device = banner.device or silent
        facts.table_seen = True
        facts.names.append((banner.test, evidence))
        self._banner, self._columns = banner, []
        self.runs.begin_table(self, plain_rows=True)

    def row(self, number: int, line: bytes, key: bytes) -> bool:
        if line.lstrip()[:1].isdigit():
            banner = self._banner if self.runs.table is self else None
            row = parse_row(decode(line)) if banner else None
            if banner and row:
                evidence = Evidence(self.runs.file, number, decode(line))
                commands = [each for each, _ in self.run.commands]
                full = not commands or any("-f" in each.arguments for each in commands)
                wrong = _contradiction(banner, row) or _of_columns(self._columns, row, full=full)
                self.run.note_contradiction(wrong, evidence)
                _add(self.run, banner, row, evidence)
            return row is not None
        if b"requires" in line and (needed := PATTERNS["ranks"].search(decode(line, 300))):
            facts, evidence = self.run, Evidence(self.runs.file, number, decode(line, 300))
            facts.tool = facts.tool or "osu"
            facts.note_message("osu.ranks", evidence, needed.groupdict())
            facts.launches.append(evidence)
            facts.single_starts += 1
        return False  # it can be a library's message, too


def _add(facts: JobOutput, banner: OsuBanner, row: OsuRow, evidence: Evidence) -> None:
    if facts.full:
        facts.dropped_from = facts.dropped_from or evidence
        return
    rate = banner.quantity == "bw"
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


def _full(columns: list[str]) -> list[str]:
    """Return the columns of a table with ``-f``, whose header 7.3 prints as without it."""
    kind, _, what = columns[0].partition(" ") if len(columns) == 1 else ("", "", "")
    return [columns[0], f"Min {what}", f"Max {what}", "Iterations"] if kind == "Avg" else columns


def _of_columns(columns: list[str], row: OsuRow, *, full: bool) -> str:
    """Return where a row differs from the header, which may be of a table with ``-f``: by the
    number of columns, or an average that is outside of its smallest and largest value."""
    values = [row.value, *row.others]
    count = len(values) + (row.valid is not None)
    if columns and count != len(columns):
        columns = _full(columns) if full else columns
        if count != len(columns):
            return f"a row has {count + 1} columns, the header names {len(columns) + 1}"
    named = dict(zip(columns, values, strict=False))
    for column, average in named.items():
        kind, _, what = column.partition(" ")
        low, high = (named.get(f"{end} {what}", average) for end in ("Min", "Max"))
        if kind == "Avg" and not agrees(average, 2, low, high):
            return f"{column} {average:g} is not between {low:g} and {high:g}"
    return ""


def _contradiction(banner: OsuBanner, row: OsuRow) -> str:
    """Return what is wrong with a row of ``osu_mbw_mr``, which has two rates."""
    if row.whole and row.others:
        return f"{row.value:g} has no decimals: a space splits a number in two"
    if banner.test != "osu_mbw_mr" or not row.others or not row.nbytes:
        return ""
    rate = row.value * 1e6 / row.nbytes
    unit = half_unit(2) * 1e6 / row.nbytes
    if agrees(row.others[0], 2, rate - unit, rate + unit):
        return ""
    return f"{row.others[0]:g} messages of {row.nbytes} bytes are not {row.value:g} MB/s"
