# SPDX-License-Identifier: MIT
"""The run in a ``-J`` document of nccl-tests, with the line of each fact."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from busbar.engine.job_output import JobOutput, OutOfBounds
from busbar.engine.reading import Evidence
from busbar.redact import kept_environment
from busbar.tools.nccl_tests import parse
from busbar.tools.nccl_tests.read import TOOL_NAME, NcclTable, add_row

_SIZE = re.compile(r'"size"\s*:\s*\d+')
_RATE = re.compile(r'"bus_bw"\s*:\s*[\d.eE+-]+')
_WRONG = re.compile(r'"nwrong"\s*:\s*"?[\w.+-]+')
_HALVES = re.compile(r'"(?:out_of_place|in_place)"\s*:\s*\{[^{}]*')


class _Places:
    """Finds the text of a fact in a document.

    Only the words of the fact become evidence: a document on one line has the whole environment
    on that line.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def _evidence(self, match: re.Match[str], words: str = "") -> Evidence:
        line = bisect_right(self._newlines, match.start()) + 1
        return Evidence(self._name, line, words or match[0])

    def find(self, pattern: str, after: str = "") -> Evidence:
        """Return the first match behind ``after``; the first line of the document without one."""
        begin = max(self._text.rfind(after), 0) if after else 0
        match = re.compile(pattern).search(self._text, begin)
        return self._evidence(match) if match else Evidence(self._name, 1, self._text[:1])

    def setting(self, name: str) -> Evidence:
        """Return ``NAME=value`` in the list of environment variables."""
        match = re.search(rf'(?<="){re.escape(name)}=(?:[^"\\]|\\.)*', self._text)
        return self._evidence(match) if match else Evidence(self._name, 1, self._text[:1])

    def rows(self) -> list[list[Evidence]]:
        """Return, for each result, the lines with the rate or the error count of its halves."""
        results = re.search(r'"results"\s*:', self._text)
        begin = results.end() if results else 0
        starts = [match.start() for match in _SIZE.finditer(self._text, begin)]
        rows = []
        for start, end in pairwise([*starts, len(self._text)]):
            rows.append([self._half(h) for h in _HALVES.finditer(self._text, start, end)])
        return rows

    def _half(self, half: re.Match[str]) -> Evidence:
        wrong = _WRONG.search(self._text, half.start(), half.end())
        rate = _RATE.search(self._text, half.start(), half.end())
        if wrong and not re.fullmatch(r'"nwrong"\s*:\s*"?(?:0(?:\.0*)?|N)', wrong[0]):
            return self._evidence(wrong)
        return self._evidence(rate or half)


def from_json(run: parse.NcclDocument, name: str, text: str) -> JobOutput:
    """Return the run in the document ``text`` of the file ``name``."""
    places = _Places(name, text)
    facts = JobOutput(files=[name], tool=TOOL_NAME, table_seen=True)
    facts.ranks = run.ranks
    if run.program:
        program = places.find(re.escape(run.program))
        facts.names.append((run.program.removesuffix("_perf"), program))
    if run.version:
        version = places.find(r'"nccl_version"\s*:\s*"?\w+')
        facts.note_message("tests.nccl", version, {"headers": "", "library": run.version})
    for error in run.errors:
        line = places.find(r'"errors"\s*:')
        facts.note_message("tests.failure", line, {"text": error})
    for device in run.devices:
        facts.devices[device.host, device.pid * 1024 + device.device] = device
        facts.hosts.setdefault(device.host)
    for key, value in kept_environment(run.environment).items():
        facts.note_setting(key, value, places.setting(key))
    nowhere = Evidence(name, 1, text[:1])
    lines = places.rows()
    for at, row in enumerate(run.rows):
        halves = lines[at] if at < len(lines) else []
        first = halves[0] if halves else nowhere
        add_row(facts, row, first, halves[1] if len(halves) > 1 else first)
    if run.out_of_bounds is not None:
        line = places.find(r'"count"\s*:\s*"?\d+', after='"out_of_bounds"')
        bounds = run.out_of_bounds
        facts.out_of_bounds = OutOfBounds(bounds.count, bounds.okay, line)
    if run.parameters is not None:
        line = places.find(r'"maximum_bytes"\s*:\s*\d+')
        facts.part(NcclTable).parameters = run.parameters, line
    if run.complete:
        facts.finished = places.find(r'"end_time"')
    else:
        last = lines[-1][-1] if lines and lines[-1] else nowhere
        facts.incomplete = last
    return facts


def read_document(name: str, text: str) -> JobOutput | None:
    """Return the run in a document; None for JSON of another kind."""
    run = parse.parse_json(text)
    return from_json(run, name, text) if run else None
