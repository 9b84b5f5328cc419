# SPDX-License-Identifier: MIT
"""Import of files into the history: what a file is, and its readings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from busbar.boundary import read_text
from busbar.document import agreed, load, parse_document
from busbar.engine.check_document import CheckDocument
from busbar.engine.collect import read
from busbar.engine.identify import named_operation
from busbar.engine.job_output import JobOutput
from busbar.engine.reading import Reading
from busbar.errors import file_error, value_error
from busbar.history import reframe
from busbar.history.read import SESSION
from busbar.history.record import HistoryRecord, Measured, flat, measured
from busbar.history.store import HistoryStore
from busbar.parse import numbers
from busbar.parse.text import Source
from busbar.units import format_bytes, past

_Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""Text; null is none."""
_NO_FACTS: dict[str, str] = {}
_OF_RECORD = ("site", "partition", "check", "lane", "delivery")
_OF_ROW = ("node", "metric", "unit", "low", "typical", "high", "limit")


class JsonLine(BaseModel):
    """One reading. Other keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    time: str | int | float
    """ISO 8601, UTC if it names no zone; or seconds since 1970."""
    site: str = Field("", validation_alias=AliasChoices("site", "system"))
    """The system that was measured."""
    partition: _Text = ""
    """Partition of the system."""
    node: _Text = ""
    """The node, or several with commas."""
    check: _Text = ""
    """The check or benchmark."""
    metric: str = Field(min_length=1)
    """What was measured, with its size: ``busbw 16 MiB``."""
    unit: _Text = ""
    """``GB/s``, ``us``...; of a time, less is better."""
    value: int | float
    """The reading."""
    lane: _Text = ""
    """Lane of UCX or family of MPI."""
    delivery: _Text = ""
    """How the stack reached the job."""
    low: float | None = None
    """Lowest healthy reading."""
    typical: float | None = None
    """Typical reading."""
    high: float | None = None
    """Highest healthy reading."""
    limit: float | None = None
    """What the links carry at most."""
    provenance: dict[str, Any] | None = None
    """What it was measured with: ``{"driver": "570.86", "lock": {"libfabric": "2.0"}}``."""


def parse_lines(lines: Iterable[str]) -> Iterator[HistoryRecord]:
    """Parse lines; raise ``ValueError`` with the number of the first wrong one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _record(line)
            except ValidationError as error:
                raise ValueError(f"line {number}: {_refused(error)}") from error
            except json.JSONDecodeError as error:
                raise ValueError(f"line {number}: is not JSON: {error.msg}") from error
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def _refused(error: ValidationError) -> str:
    """Return the wrong key and the reason."""
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else "the line"
    # Of a key with several types, pydantic names only the first one.
    alternatives = len(first["loc"]) > 1 and key in JsonLine.model_fields
    return f"{key}: has the wrong type" if alternatives else f"{key}: {first['msg']}"


def _record(text: str) -> HistoryRecord:
    line = JsonLine.model_validate(numbers.load_json(text, once=True))
    row = Measured(value=float(line.value), **{name: getattr(line, name) for name in _OF_ROW})
    record = HistoryRecord(
        time=_seconds(line.time),
        rows=(row,),
        provenance=_facts(json.dumps(line.provenance)) if line.provenance else _NO_FACTS,
        **{name: getattr(line, name) for name in _OF_RECORD},
    )
    return agreed(record)


_seconds = lru_cache(4096)(past)


@lru_cache(4096)
def _facts(document: str) -> dict[str, str]:
    """Return the facts of a provenance, which many readings repeat."""
    return flat(json.loads(document))


_MOST_BYTES = 1 << 30
_HEAD = 1 << 16
_METRICS = {"bw": "bandwidth", "busbw": "busbw", "algbw": "algbw", "latency_us": "latency"}
_OUTPUT = "output "
"""Before the digest of an output whose time was taken from the file."""


@dataclass(frozen=True)
class ImportPlace:
    """Where outputs were measured that do not say so."""

    site: str = ""
    partition: str = ""
    node: str = ""
    time: float | None = None
    """Seconds since 1970; the time of the file if it is not given."""


@dataclass(frozen=True)
class Imported:
    """What came of one file."""

    file: str
    """The file."""
    kind: str
    """What it is: ``JSON lines``, ``report of ReFrame``..."""
    readings: int
    """Readings that the history did not have."""


@dataclass(frozen=True, kw_only=True)
class Imports:
    """What was imported."""

    schema: Literal["busbar-history-import/1"] = "busbar-history-import/1"
    """The schema of this document."""
    files: tuple[Imported, ...]
    """The files."""


def import_file(store: HistoryStore, path: Path, place: ImportPlace) -> Imported:
    """Add the readings of a file, all or none; skip readings that the history already has.

    Raises ``BusbarError`` for a file that is not of a known kind, or has an error.
    """
    hint = "docs/history.md lists the formats; nothing was imported from this file"
    unread = file_error("cannot be read", path)
    with unread, value_error("cannot be imported: {}", path, hint):
        kind, source, records = _parsed(path, place)
        if source.startswith((SESSION, _OUTPUT)) and store.has(source):
            return Imported(str(path), kind, 0)
        return Imported(str(path), kind, store.add(source, path.name, records))


def _parsed(path: Path, place: ImportPlace) -> tuple[str, str, Iterable[HistoryRecord]]:
    """Return the kind of a file, the name of its source, and its readings."""
    text = read_text(path, _MOST_BYTES, errors="replace").removeprefix("\ufeff")
    source = "file " + _digest(text)
    head = text[:_HEAD].lstrip()
    first, _, second = head.partition("\n")
    if not head:
        raise ValueError("it is empty")
    # A broken first line does not make another kind of a file.
    if _is_line(first) or _is_line(second.partition("\n")[0]):
        return "JSON lines", source, parse_lines(text.split("\n"))
    if head.startswith("{"):
        document = _document(text)
        if isinstance(document, Mapping):
            if "session_info" in document:
                session = reframe.parse_report(text)
                return "report of ReFrame", SESSION + session.uuid, session.records
            if document.get("schema") == CheckDocument.schema:
                results = parse_document(CheckDocument, document, finite=True)
                # The same readings as in ReFrame's session, which must not count twice.
                source = SESSION + results.sessions[0] if any(results.sessions[:1]) else source
                return "results of busbar check", source, tuple(_checked(results))
            if "metric" in document and "value" in document:  # one object over several lines
                return "JSON lines", source, parse_lines([" ".join(text.split("\n"))])
    time = place.time
    if time is None:
        # The time of a copy is another one, and must not make its readings count twice.
        source = _OUTPUT + _digest("\0".join([place.site, place.partition, place.node, text]))
        time = path.stat().st_mtime
    return "output of a benchmark", source, tuple(_printed(path, place, time))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_line(line: str) -> bool:
    """Whether a line is a separate reading."""
    try:
        row = numbers.load_json(line)
    except ValueError:
        # Of a broken line, the keys tell what it was meant to be.
        return '"metric"' in line and '"value"' in line
    return (
        isinstance(row, Mapping)
        and not {"session_info", "schema"} & row.keys()
        and ("value" in row or "metric" in row)
    )


def _document(text: str) -> Any:
    try:
        return load(text)
    except json.JSONDecodeError:  # not JSON
        return None


def _checked(document: CheckDocument) -> Iterator[HistoryRecord]:
    time = _seconds(document.time)
    of_nodes = document.node_provenance
    for row in document.results:
        facts = document.provenance.get(row.check, {})
        yield HistoryRecord(
            site=document.site,
            time=time,
            check=row.check.partition(" ")[0],
            partition=row.partition,
            lane=row.series.lane if row.series else document.lane,
            delivery=document.delivery,
            rows=tuple(measured(row)),
            provenance=facts | of_nodes.get(row.check, {}).get(row.where, {}),
        )


def _printed(path: Path, place: ImportPlace, time: float) -> Iterator[HistoryRecord]:
    """Yield the readings in benchmark output; raise ``ValueError`` if there are none."""
    found = False
    for run in read(Source.from_path(path)):
        rows = tuple(_row(run, each, place) for each in run.readings if each.value > 0)
        found |= bool(rows)
        check = run.tool or ""
        yield HistoryRecord(
            site=place.site, partition=place.partition, check=check, time=time, rows=rows
        )
    if not found:
        raise ValueError("it does not contain benchmark readings")


def _row(run: JobOutput, reading: Reading, place: ImportPlace) -> Measured:
    pair = "" if reading.source is None else f"{reading.source}->{reading.target}"
    half = {True: "in place", False: "out of place", None: ""}[reading.in_place]
    named = named_operation(run)
    operation = reading.operation or (named[0] if named else "")
    words = (operation, _METRICS[reading.kind], pair, reading.buffers, half)
    return Measured(
        node=place.node or ",".join(sorted(run.hosts)),
        metric=" ".join([*dict.fromkeys(w for w in words if w), format_bytes(reading.nbytes)]),
        unit="us" if reading.kind == "latency_us" else "GB/s",
        value=reading.value,
    )
