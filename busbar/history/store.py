# SPDX-License-Identifier: MIT
"""Busbar's own store next to ReFrame's: searchable readings and their provenance.

`busbar.db` has what the sessions of ReFrame's `results.db` say, in a form that a million readings
can be read from in seconds, and what was imported. ReFrame's store stays the source of its
sessions: without `busbar.db` they are read again.

A command that only reads also works where nothing can be written or locked: it then copies the
store to memory.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from busbar.boundary import refuse_foreign_to_root, refuse_links
from busbar.document import parse_document, written
from busbar.errors import BusbarError
from busbar.history.model import NO_BOUNDS, HistoryBounds, HistoryKey, iso
from busbar.history.record import HistoryRecord
from busbar.history.statistic import Array
from busbar.parse import numbers
from busbar.parse.tables import beside, refused
from busbar.units import CLOCKS_S, FIRST_S

FILE = "busbar.db"
_VERSION = 1
_WAIT_S = 30
_MOST_BYTES = 1 << 22
"""Of one value."""
_MOST_VALUE = 1e18
_MOST_READINGS = 10_000_000
"""That are read at once, in 40 bytes each."""
_KEY = {each.name: each.name for each in fields(HistoryKey)} | {"check": "check_name"}
_BOUNDS = {each.name: each.name for each in fields(HistoryBounds)} | {"limit": "most"}
"""Columns by field: some fields are words of SQL."""
_QUERIES = beside(__file__)["queries"]
_SCHEMA = beside(__file__)["schema"].format(
    key=", ".join(_KEY.values()), limits=", ".join(_BOUNDS.values()), version=_VERSION
)
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What sqlite3 raises; the second if its message names something that is damaged."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class HistorySource:
    """A session or an imported file."""

    name: str
    """``session`` and ReFrame's id of it, or ``file`` or ``output`` and its digest."""
    label: str
    """The host of the session, or the name of the file."""
    first: float = field(metadata=written(by=iso))
    """Time of its first reading, ISO 8601."""
    last: float = field(metadata=written(by=iso))
    """Time of its last reading."""
    readings: int
    """Its readings in the history."""
    sites: tuple[str, ...]
    """The sites that were measured."""


@dataclass(frozen=True, kw_only=True)
class HistoryList:
    """The sessions and files of the history."""

    schema: Literal["busbar-history-list/1"] = "busbar-history-list/1"
    """The schema of this document."""
    sources: tuple[HistorySource, ...]
    """The oldest first."""


class HistoryStore:
    """The open store."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, kept: bool) -> None:
        self.path = path
        self.connection = connection
        self.kept = kept
        """Whether additions are written to the file."""

    def has(self, source: str) -> bool:
        """Whether a source was added before."""
        rows = self.connection.execute("SELECT 1 FROM source WHERE name = ?", (source,))
        return rows.fetchone() is not None

    def add(self, source: str, label: str, records: Iterable[HistoryRecord]) -> int:
        """Add the readings of a source; return how many were new.

        Raises ``BusbarError``, and adds none, if they cannot be written or a page is damaged.
        """
        with self._errors(), self.connection as db:
            if self._damage != "ok":
                raise altered(self.path, self._damage)
            number = self._number("source", {"name": source}, label=label)
            return db.executemany(
                "INSERT OR IGNORE INTO reading VALUES (?, ?, ?, ?, ?, ?)",
                ((*row, number) for row in self._rows(records)),
            ).rowcount

    @cached_property
    def _damage(self) -> str:
        """What is wrong with a page, found by the indexes, which repeat most columns; or ``ok``.

        It takes 70 ms for a year of 500 series, too long for each command that only reads.
        """
        return str(self.connection.execute("PRAGMA integrity_check(1)").fetchone()[0])

    def _rows(self, records: Iterable[HistoryRecord]) -> Iterator[tuple[object, ...]]:
        """Yield the columns of each reading before its source."""

        @cache
        def series(key: HistoryKey) -> int:
            return self._number("series", _columns(_KEY, key))

        @cache
        def bounds(of: HistoryBounds) -> int | None:
            return None if of == NO_BOUNDS else self._number("bounds", _columns(_BOUNDS, of))

        # By identity: the readings of a night share one mapping of a hundred facts.
        known: dict[int, tuple[Mapping[str, str], int | None]] = {}
        for record in records:
            facts = record.provenance
            if id(facts) not in known:
                text = json.dumps(dict(facts), sort_keys=True)
                known[id(facts)] = (
                    facts,
                    self._number("provenance", {"facts": text}) if facts else None,
                )
            for row in record.rows:
                yield (
                    series(record.key(row)),
                    record.time,
                    row.value,
                    known[id(facts)][1],
                    bounds(HistoryBounds.of(row)),
                )

    def _number(self, table: str, key: Mapping[str, object], **more: object) -> int:
        """Return the number of a row, which is inserted if it is new."""
        where = " AND ".join(f"{name} IS ?" for name in key)
        query = f"SELECT id FROM {table} WHERE {where}"  # noqa: S608 - names of our own
        if found := self.connection.execute(query, (*key.values(),)).fetchone():
            return int(found[0])
        row = {**key, **more}
        marks = ", ".join("?" * len(row))
        insert = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"  # noqa: S608
        return int(self.connection.execute(insert, (*row.values(),)).lastrowid or 0)

    def series(self) -> dict[int, HistoryKey]:
        """Return the key of each series by its number."""
        return self._table("series", HistoryKey, _KEY)

    def bounds(self) -> dict[int, HistoryBounds]:
        """Return all bounds by their number."""
        return self._table("bounds", HistoryBounds, _BOUNDS)

    def _table(
        self, table: str, kind: Callable[..., _T], columns: Mapping[str, str]
    ) -> dict[int, _T]:
        names = ", ".join(f'{column} AS "{name}"' for name, column in columns.items())
        with self._errors():
            rows = self.connection.execute(f"SELECT id, {names} FROM {table}")  # noqa: S608
            rows.row_factory = sqlite3.Row
            return {row["id"]: self._parsed(table, row["id"], kind, _row(row)) for row in rows}

    def _parsed(self, table: str, number: int, kind: Callable[..., _T], value: object) -> _T:
        try:
            known = value if isinstance(value, dict) else numbers.load_json(str(value))
            return parse_document(kind, known)
        except ValueError as error:
            raise altered(self.path, f"row {number} of {table}: {error}") from error

    def readings(self, since: float | None, source: str = "") -> Array:
        """Return number, time, value, provenance and bounds of readings, by series and time.

        Missing numbers are 0. ``source`` selects sources by a part of their name or label. Raises
        ``BusbarError`` for content that Busbar did not write.
        """
        parts, first = [np.empty((0, 5))], -1e18 if since is None else since
        with self._errors():
            cursor = self.connection.execute(_QUERIES["readings"], (first, source, source))
            while rows := cursor.fetchmany(1 << 16):
                parts.append(_numbers(self.path, rows))
                if sum(map(len, parts)) > _MOST_READINGS:
                    raise refused(__file__, "many-readings", str(self.path), most=_MOST_READINGS)
        return np.concatenate(parts)

    def sources(self) -> list[HistorySource]:
        """Return the sources with readings, the oldest first."""
        with self._errors():
            rows = self.connection.execute(_QUERIES["sources"]).fetchall()
        _numbers(self.path, [(0, time, 1, 0, 0) for row in rows for time in row[2:4]])
        return [
            HistorySource(str(name), str(label), first, last, count, _sorted(sites))
            for name, label, first, last, count, sites in rows
        ]

    def provenance(self) -> dict[int, dict[str, str]]:
        """Return the facts of each provenance by its number."""
        with self._errors():
            rows = self.connection.execute("SELECT id, facts FROM provenance")
            return {n: self._parsed("provenance", n, dict[str, str], text) for n, text in rows}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SQLITE_ERRORS as error:
            raise _refusal(self.path, error) from error


def _sorted(texts: str) -> tuple[str, ...]:
    return tuple(sorted(map(str, json.loads(texts))))


def _row(row: sqlite3.Row) -> dict[str, object]:
    """Return a row by its columns; SQLite has numbers for flags."""
    found = dict(row)
    if found.get("calibrated") in (0, 1):
        found["calibrated"] = bool(found["calibrated"])
    return found


def _numbers(path: Path, rows: Sequence[tuple[object, ...]]) -> Array:
    """Return rows of the readings; raise ``BusbarError`` for the first that is impossible."""
    wrong: object = None
    try:
        found = np.array(rows, dtype=np.float64).reshape(-1, 5)
        now = datetime.now(UTC).timestamp()
        bad = ~np.isfinite(found).all(axis=1) | (np.abs(found[:, 2]) > _MOST_VALUE)
        bad |= (found[:, 1] < FIRST_S) | (found[:, 1] >= now + CLOCKS_S)
        wrong = rows[int(bad.argmax())] if bad.any() else None
    except (TypeError, ValueError, OverflowError) as error:
        raise altered(path, f"a reading is not a number: {error}") from error
    if wrong:
        raise altered(
            path, f"the reading {wrong[1:3]} of series {wrong[0]} has no such time or value"
        )
    return found


def altered(path: Path, what: str) -> BusbarError:
    """Return the error for content of the store that Busbar did not write."""
    return refused(__file__, "changed", path, what=what)


def _refuse_altered(path: Path, connection: sqlite3.Connection) -> None:
    """Raise ``BusbarError`` if there is a view, a trigger or another table or column."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
    with closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(_SCHEMA)
        if found := _objects(connection) ^ _objects(ours):
            kind, name, columns = min(found)
            raise altered(path, f"the {kind} {name!r} ({columns or 'no columns'}) is not Busbar's")


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Return kind, name and columns of each table, index, view and trigger."""
    columns = "SELECT group_concat(name, ', ') FROM pragma_table_info(m.name)"
    return {
        (kind, name, names or "")
        for kind, name, names in connection.execute(
            f"SELECT type, name, iif(type = 'table', ({columns}), '') FROM sqlite_master m"  # noqa: S608
        )
        if not name.startswith("sqlite_stat")
    }


def _columns(columns: Mapping[str, str], value: object) -> dict[str, object]:
    return {column: getattr(value, name) for name, column in columns.items()}


@contextmanager
def open_store(where: Path, *, to_write: bool = False) -> Iterator[HistoryStore]:
    """Open the store in a directory; it is made if it is missing.

    Without ``to_write``, a store that cannot be written or locked is copied to memory. Raises
    ``BusbarError`` if the store cannot be read, or not be written with ``to_write``.
    """
    path = where / FILE
    refuse_links(path, "BUSBAR_HISTORY")
    if where.exists() and not where.is_dir():
        words = {"name": str(where), "parent": where.parent}
        raise refused(__file__, "no-directory", "BUSBAR_HISTORY", **words)
    if path.exists() and not path.is_file():  # SQLite would wait for a pipe
        raise _refusal(path, OSError(0, "not a regular file"))
    try:
        refuse_foreign_to_root(where, "BUSBAR_HISTORY")
        store = HistoryStore(path, _writable(path), kept=True)
    except BusbarError:
        if to_write:
            raise
        store = HistoryStore(path, _copied(path), kept=False)
    except (OSError, *SQLITE_ERRORS) as error:
        if to_write or not _only_unwritable(error):
            raise _refusal(path, error) from error
        store = HistoryStore(path, _copied(path), kept=False)
    try:
        yield store
    finally:
        store.connection.close()


def _writable(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    # SQLite opens what it may not write for reading, and says so at the first change only.
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    connection = sqlite3.connect(path, timeout=_WAIT_S)
    try:
        # Takes the lock for writing at once: a store that cannot be locked is refused here.
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.rollback()
        if not version:
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        _refuse_other_version(path, version or _VERSION)
        _refuse_altered(path, connection)
    except BaseException:  # an interruption, too, must not leave the lock
        connection.close()
        raise
    return connection


def _copied(path: Path) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:")
    if not path.exists():
        memory.executescript(_SCHEMA)
        return memory
    # "immutable" reads without locks, which a file system may lack.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as stored:
            stored.backup(memory)
        (version,) = memory.execute("PRAGMA user_version").fetchone()
        _refuse_other_version(path, version)
        _refuse_altered(path, memory)
    except SQLITE_ERRORS as error:
        raise _refusal(path, error) from error
    return memory


def _refuse_other_version(path: Path, version: int) -> None:
    if version != _VERSION:
        raise refused(__file__, "other-version", path, version=version, known=_VERSION)


def _only_unwritable(error: Exception) -> bool:
    """Whether the store may still be readable."""
    return isinstance(error, OSError) or any(
        word in str(error)
        for word in ("readonly", "unable to open", "locking protocol", "disk I/O error", "full")
    )


def _refusal(path: Path, error: Exception) -> BusbarError:
    what = getattr(error, "strerror", None) or str(error)
    if isinstance(error, UnicodeDecodeError):
        what = "a malformed name in the database"
    hint = "put the history on a local disk of one host: BUSBAR_HISTORY=DIR"
    if "full" in what or "No space" in what:
        hint = "free some space, or set BUSBAR_HISTORY to another directory"
    elif "not a database" in what or "malformed" in what:
        hint = "move it away; the sessions of ReFrame are read again, import files again"
    elif "locked" in what:
        hint = "another command is writing to it; wait and repeat"
    return BusbarError(f"the history cannot be used: {what}", where=str(path), hint=hint)
