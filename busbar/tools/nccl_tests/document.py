# SPDX-License-Identifier: MIT
"""The run in a ``-J`` document of nccl-tests or ``-x`` file of rccl-tests, with its lines."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from busbar.engine.job_output import Device, JobOutput, OutOfBounds
from busbar.engine.reading import Evidence
from busbar.parse import numbers
from busbar.redact import kept_environment
from busbar.tools.nccl_tests import parse
from busbar.tools.nccl_tests.answer import signatures
from busbar.tools.nccl_tests.options import OPTIONS, Parameters
from busbar.tools.nccl_tests.read import TOOL_NAME, NcclTable, add_row

_SIZE = re.compile(r'"size"\s*:\s*\d+')
_RATE = re.compile(r'"bus_bw"\s*:\s*[\d.eE+-]+')
_WRONG = re.compile(r'"nwrong"\s*:\s*"?[\w.+-]+')
_HALVES = re.compile(r'"(?:out_of_place|in_place)"\s*:\s*\{[^{}]*')


_RECORD = re.compile(r'(?P<record>\{(?=[^{}]*"busBw")[^{}]*\})')
"""In a file of rccl-tests (https://github.com/ROCm/rccl-tests/pull/93)."""
_OF_RCCL = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
"""Names in rccl-tests that differ from the names of its programs."""


class _Places:
    """Finds the text of a fact in a document.

    Only the words of the fact become evidence: a document on one line has the whole environment
    on that line.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.nowhere = Evidence(name, 1, text[:1])
        self._text = text
        self._newlines = [match.start() for match in re.finditer("\n", text)]

    def _evidence(self, match: re.Match[str], words: str = "") -> Evidence:
        line = bisect_right(self._newlines, match.start()) + 1
        return Evidence(self.name, line, words or match[0])

    def find(self, pattern: str, after: str = "") -> Evidence:
        """Return the first match behind ``after``; the first line of the document without one."""
        begin = max(self._text.rfind(after), 0) if after else 0
        match = re.compile(pattern).search(self._text, begin)
        return self._evidence(match) if match else self.nowhere

    def setting(self, name: str) -> Evidence:
        """Return ``NAME=value`` in the list of environment variables."""
        match = re.search(rf'(?<="){re.escape(name)}=(?:[^"\\]|\\.)*', self._text)
        return self._evidence(match) if match else self.nowhere

    def rows(self) -> list[list[Evidence]]:
        """Return, for each result, the lines with the rate or the error count of its halves."""
        results = re.search(r'"results"\s*:', self._text)
        begin = results.end() if results else 0
        starts = [match.start() for match in _SIZE.finditer(self._text, begin)]
        ends = pairwise([*starts, len(self._text)])
        return [[self._half(h) for h in _HALVES.finditer(self._text, *each)] for each in ends]

    def records(self) -> Iterator[tuple[dict[str, Any], Evidence]]:
        """Yield the records of a file of rccl-tests, each with its line."""
        for match in _RECORD.finditer(self._text):
            yield numbers.load_json(match["record"]), self._evidence(match, match["record"])

    def _half(self, half: re.Match[str]) -> Evidence:
        wrong = _WRONG.search(self._text, half.start(), half.end())
        rate = _RATE.search(self._text, half.start(), half.end())
        if wrong and not re.fullmatch(r'"nwrong"\s*:\s*"?(?:0(?:\.0*)?|N)', wrong[0]):
            return self._evidence(wrong)
        return self._evidence(rate or half)


def read_document(name: str, text: str) -> JobOutput | None:
    """Return the run in the document ``text`` of the file ``name``; None for JSON of another kind.

    The file of rccl-tests is a list of records, or a record on each line.
    A document that breaks off is read up to its last whole result and marked incomplete.
    Raises ``ValueError`` when nothing of it can be read, or when it has another form.
    """
    try:
        if _RECORD.match(text.lstrip("[ \t\r\n")):
            return _read_records(_Places(name, text))
        return _read_config(name, text)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the JSON has an unexpected form: {error!r}") from error


def _read_config(name: str, text: str) -> JobOutput | None:
    complete = True
    try:
        document = numbers.load_json(text)
    except json.JSONDecodeError:
        complete = False
        document = numbers.load_json(_mend(text))
    if not isinstance(document, dict) or "results" not in document or "config" not in document:
        return None
    return _read(document, _Places(name, text), complete=complete and "end_time" in document)


def _read(document: dict[str, Any], places: _Places, *, complete: bool) -> JobOutput:
    facts = JobOutput(files=[places.name], tool=TOOL_NAME, table_seen=True)
    config: dict[str, Any] = document["config"]
    devices = [_device(each) for each in config.get("devices", [])]
    for device in devices:
        facts.devices[device.host, device.pid * 1024 + device.device] = device
        facts.hosts.setdefault(device.host)
    facts.ranks = _json_ranks(config, devices)
    if program := next(iter(document.get("args", [])), ""):
        name = str(program).rsplit("/", 1)[-1]
        facts.names.append((name.removesuffix("_perf"), places.find(re.escape(name))))
    if library := str(document.get("nccl_version", "")):
        version = places.find(r'"nccl_version"\s*:\s*"?\w+')
        facts.note_message("tests.nccl", version, {"headers": "", "library": library})
    for failure in filter(None, document.get("errors", [])):
        line = places.find(r'"errors"\s*:')
        facts.note_message("tests.failure", line, {"text": str(failure)})
    variables = (each for each in document.get("env", []) if isinstance(each, str))
    settings = dict(each.split("=", 1) for each in variables if "=" in each)
    for key, value in kept_environment(settings).items():
        facts.note_setting(key, value, places.setting(key))
    lines = places.rows()
    for at, result in enumerate(document["results"]):
        halves = lines[at] if at < len(lines) else []
        first = halves[0] if halves else places.nowhere
        add_row(facts, _json_row(result), first, halves[1] if len(halves) > 1 else first)
    if bounds := _json_bounds(document.get("out_of_bounds") or {}):
        line = places.find(r'"count"\s*:\s*"?\d+', after='"out_of_bounds"')
        facts.out_of_bounds = OutOfBounds(*bounds, line)
    facts.part(NcclTable).average = _json_mean(document.get("average_bus_bandwidth") or {})
    if parameters := _json_parameters(config):
        line = places.find(r'"maximum_bytes"\s*:\s*\d+')
        facts.part(NcclTable).parameters = parameters, line
    if complete:
        facts.finished = places.find(r'"end_time"')
    else:
        facts.incomplete = lines[-1][-1] if lines and lines[-1] else places.nowhere
    return facts


def _read_records(places: _Places) -> JobOutput:
    """Return the run in a file of rccl-tests; each record is one half of a row."""
    facts = JobOutput(files=[places.name], tool=TOOL_NAME, table_seen=True)
    rows: dict[tuple[Any, ...], dict[bool, tuple[dict[str, Any], Evidence]]] = {}
    for record, line in places.records():
        key = tuple(record.get(name) for name in ("numCycle", "name", "size", "type", "redop"))
        rows.setdefault(key, {})[bool(record["inPlace"])] = record, line
    for halves in rows.values():
        record, first = halves[False]
        in_place, last = halves.get(True, (None, first))
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(record["name"])).lower()
        name = _OF_RCCL.get(name, name)
        facts.ranks = numbers.json_whole(record.get("ranks") or record["gpus"])
        if not facts.names:
            facts.names.append((name, first))
            shown = {each: str(record.get(each, "")) for each in ("nodes", "ranks")}
            facts.note_message("nccl.nodes", first, shown)
        nbytes = numbers.json_whole(record["size"])
        kind = signatures(facts.ranks).get(name) if facts.ranks > 1 else None
        element = parse.TYPE_BYTES.get(record["type"], 1) * (kind.parts if kind else 1)
        words = str(record["type"]), str(record["redop"]), None
        half = _record_half(in_place) if in_place else None
        row = parse.NcclRow(nbytes, nbytes // element, *words, _record_half(record), half)
        add_row(facts, row, first, last)
    return facts


def _record_half(record: dict[str, Any]) -> parse.NcclHalf:
    time, algbw, busbw = (numbers.json_real(record[key]) for key in ("time", "algBw", "busBw"))
    return parse.NcclHalf(time, algbw, busbw, _wrong(record.get("wrong", record.get("#wrong"))))


def _device(device: dict[str, Any]) -> Device:
    rank, pid, number = (numbers.json_whole(device[key]) for key in ("rank", "pid", "device"))
    host, bus, name = (str(device[key]) for key in ("hostname", "device_hex", "device_info"))
    return Device(rank, pid, host, number, bus, name)


def _json_bounds(bounds: dict[str, Any]) -> tuple[int, bool] | None:
    if "count" not in bounds:
        return None
    count = numbers.json_real(bounds["count"])
    okay = str(bounds.get("okay", "true")).lower() == "true"
    return parse.count_wrong(count, errors=False), count == 0 and okay


def _json_mean(mean: dict[str, Any]) -> float | None:
    return numbers.json_real(mean["bandwidth"]) if "bandwidth" in mean else None


def _json_parameters(config: dict[str, Any]) -> Parameters | None:
    if "minimum_bytes" not in config or "maximum_bytes" not in config:
        return None
    names = {name: row["json"] for name, row in OPTIONS.items() if "json" in row}
    return {name: numbers.json_whole(config[key]) for name, key in names.items() if key in config}


def _json_ranks(config: dict[str, Any], devices: list[Device]) -> int | None:
    # The list names only the devices of the process that writes; with -g N that is one of N.
    gpus, threads = (numbers.json_whole(config.get(key, 1)) for key in ("ngpus", "nthreads"))
    named = max((d.rank for d in devices), default=-1) + 1
    return max(gpus * threads, named) or None


def _json_row(result: dict[str, Any]) -> parse.NcclRow:
    return parse.NcclRow(
        numbers.json_whole(result["size"]),
        numbers.json_whole(result["count"]),
        str(result["type"]),
        str(result["redop"]),
        numbers.whole(str(result.get("root", ""))[:20]),
        _json_half(result["out_of_place"]),
        _json_half(result["in_place"]) if result.get("in_place") else None,
    )


def _json_half(half: dict[str, Any]) -> parse.NcclHalf:
    time, algbw, busbw = (numbers.json_real(half[key]) for key in ("time", "alg_bw", "bus_bw"))
    return parse.NcclHalf(time, algbw, busbw, _wrong(half.get("nwrong")))


def _wrong(count: Any) -> int | None:
    if count in (None, "N/A"):
        return None
    return parse.count_wrong(numbers.json_real(count), errors=False)


def _mend(text: str) -> str:
    head, brace, _ = text.rpartition("\n  },")
    if not brace or '"results"' not in head:
        raise ValueError("the JSON is truncated before its first result")
    return head + "\n  }\n ]\n}"
