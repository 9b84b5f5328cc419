# SPDX-License-Identifier: MIT
"""Reports of ReFrame, and its result store: the only place that reads its tables.

Readings of Busbar's checks have their provenance in a report, others have none.

ReFrame's own module cannot read the store: it needs a site configuration in this process,
writes its indexes and takes a lock even to read, which a read-only file system refuses, and
decodes all sessions at once. Its schema is not an interface, so the version that it states is
checked. The reports inside are of ReFrame's documented format.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from busbar.document import load, parse_document
from busbar.errors import value_error
from busbar.history.model import HistoryBounds
from busbar.history.record import VARIABLE, HistoryRecord, Measured
from busbar.history.store import SQLITE_ERRORS
from busbar.parse.tables import refused
from busbar.units import seconds

FILE = "results.db"
_VERSION = "1.0"
"""Of ReFrame 4.8 to 4.10."""
_MOST_BYTES = 1 << 28
"""Of one report."""
_FIELDS = 5
"""Value, reference, lower and upper threshold, unit."""


@dataclass(frozen=True)
class Session:
    """One session of ReFrame."""

    uuid: str
    host: str
    records: tuple[HistoryRecord, ...]


def parse_report(text: str) -> Session:
    """Parse a report; raise ``ValueError`` for anything else."""
    try:
        report = load(text)
        info = report["session_info"]
        ended = seconds(info["time_end_unix"])
        found = tuple(_record(case, ended) for run in report["runs"] for case in run["testcases"])
        return Session(str(info["uuid"]), str(info["hostname"]), found)
    except KeyError as error:
        raise ValueError(f"a report of ReFrame without {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError("a ReFrame report with keys of an unexpected type") from error


def _record(case: Mapping[str, Any], ended: float) -> HistoryRecord:
    time = seconds(case.get("job_completion_time_unix") or ended)
    site = str(case["system"])
    if case.get(VARIABLE):
        return replace(parse_document(HistoryRecord, case[VARIABLE]), site=site, time=time)
    nodes = ",".join(sorted(map(str, case.get("job_nodelist") or ())))
    rows = []
    for name, fields in (case.get("perfvalues") or {}).items():
        if len(fields) < _FIELDS:
            raise ValueError(f"{name!r} has {len(fields)} fields, not {_FIELDS}")
        value, reference, lower, upper, unit = fields[:_FIELDS]
        if _is_number(value) and math.isfinite(value):
            band = vars(bounds(reference, lower, upper))
            metric = name.rpartition(":")[2]
            rows.append(
                Measured(
                    node=nodes, metric=metric, unit=str(unit or ""), value=float(value), **band
                )
            )
    return HistoryRecord(
        site=site,
        time=time,
        partition=str(case.get("partition") or ""),
        check=str(case.get("display_name") or case.get("name")).partition(" ")[0],
        delivery=str(case.get("environ") or ""),
        rows=tuple(rows),
    )


def bounds(reference: object, lower: object, upper: object) -> HistoryBounds:
    """Return a reference of ReFrame, whose thresholds are shares of it."""
    if not _is_number(reference) or not reference:
        return HistoryBounds()
    shares = (lower, upper) if reference > 0 else (upper, lower)
    ends = [reference * (1 + each) if _is_number(each) else None for each in shares]
    return HistoryBounds(ends[0], float(reference), ends[1])


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def new_sessions(directory: Path, known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield id and report of each session that is not known, the oldest first.

    Raises ``BusbarError`` if there is a store that cannot be read.
    """
    path = directory / FILE
    if not path.exists():
        return
    what, hint = "ReFrame's results cannot be read: {}", "see reframe --list-stored-sessions"
    with value_error(what, path, hint, (*SQLITE_ERRORS, OSError)):
        yield from _sessions(path, known)


def _sessions(path: Path, known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    with closing(_connect(path)) as db:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
        if views := [name for name, kind in kinds.items() if kind in ("view", "trigger")]:
            raise sqlite3.DatabaseError(f"{views[0]!r} is not a table of ReFrame")
        if not {"sessions", "metadata"} <= kinds.keys():
            return  # ReFrame could only begin it
        version = db.execute("SELECT schema_version FROM metadata").fetchone()
        if version and version[0] != _VERSION:
            raise refused(__file__, "other-version", path, version=version[0], known=_VERSION)
        uuids = db.execute("SELECT uuid FROM sessions ORDER BY session_start_unix").fetchall()
        for (uuid,) in uuids:
            if isinstance(uuid, str) and known(uuid):
                continue
            row = db.execute("SELECT json_blob FROM sessions WHERE uuid = ?", (uuid,)).fetchone()
            if not isinstance(uuid, str) or (row and not isinstance(row[0], str)):
                raise sqlite3.DatabaseError(f"session {uuid!a} is not text")
            if row:
                yield uuid, row[0]


def _connect(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    try:
        db = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=30)
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if "lock" not in str(error) and "I/O" not in str(error):
            raise
        db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)  # no locks there
    return db
