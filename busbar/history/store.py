# SPDX-License-Identifier: MIT
"""Busbar's own store beside ReFrame's: readings that can be searched, and their provenance.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path

from busbar.document import to_json
from busbar.errors import BusbarError
from busbar.history.model import NO_BOUNDS, Bounds, Key
from busbar.site.calibration import SeriesKey

FILE = "busbar.db"
_VERSION = 1
_WAIT_S = 30
_KEY = "site, partition, node, check_name, metric, unit, lane, delivery"
_BOUNDS = "low, typical, high, most, calibrated, model"
_SCHEMA = f"""
CREATE TABLE series (id INTEGER PRIMARY KEY, {_KEY}, detail TEXT, UNIQUE ({_KEY}));
CREATE TABLE provenance (id INTEGER PRIMARY KEY, facts TEXT UNIQUE);
CREATE TABLE bounds (id INTEGER PRIMARY KEY, {_BOUNDS}, UNIQUE ({_BOUNDS}));
CREATE TABLE source (id INTEGER PRIMARY KEY, name TEXT UNIQUE, label TEXT);
CREATE TABLE reading (series INTEGER, time REAL, value REAL, provenance INTEGER, bounds INTEGER,
  source INTEGER, PRIMARY KEY (series, time, value)) WITHOUT ROWID;
CREATE INDEX reading_source ON reading (source);
PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True)
class Reading:
    """One reading as it is stored."""

    key: Key
    time: float
    """Seconds since 1970."""
    value: float
    provenance: Mapping[str, str] = field(default_factory=dict)
    bounds: Bounds = NO_BOUNDS
    series: SeriesKey | None = None
    """The series as the calibration of a site has it; None for readings of others."""


@dataclass(frozen=True)
class Source:
    """A session of ReFrame or an imported file, and what of it is stored."""

    name: str
    """``session`` and ReFrame's id of it, or ``file`` or ``output`` and its digest."""
    label: str
    """The host of the session or the name of the file."""
    first: float
    last: float
    readings: int
    sites: tuple[str, ...]


class Store:
    """The open store."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, kept: bool) -> None:
        self.path = path
        self.connection = connection
        self.kept = kept
        """Whether what is added is written to the file."""

    def has(self, source: str) -> bool:
        """Whether a source was added before."""
        rows = self.connection.execute("SELECT 1 FROM source WHERE name = ?", (source,))
        return rows.fetchone() is not None

    def add(self, source: str, label: str, readings: Iterable[Reading]) -> int:
        """Add the readings of a source; return how many were new.

        Raises ``BusbarError`` if they cannot be written; then none is.
        """
        with self._errors():
            db = self.connection
            before = db.total_changes
            try:
                with db:
                    number = self.number(
                        "source", ("name", "label"), (source, label), key=("name",)
                    )
                    ids = _Ids(self)
                    before = db.total_changes
                    db.executemany(
                        "INSERT OR IGNORE INTO reading VALUES (?, ?, ?, ?, ?, ?)",
                        ((*ids.of(reading), number) for reading in readings),
                    )
                    return db.total_changes - before - ids.inserted
            except sqlite3.Error:
                db.rollback()
                raise

    def number(
        self,
        table: str,
        columns: Sequence[str],
        values: Sequence[object],
        key: Sequence[str] = (),
    ) -> int:
        """Return the number of a row, which is inserted if it is new."""
        names = key or columns
        where = " AND ".join(f"{name} IS ?" for name in names)
        chosen = [value for name, value in zip(columns, values, strict=True) if name in names]
        query = f"SELECT id FROM {table} WHERE {where}"  # noqa: S608 - names of our own
        if found := self.connection.execute(query, chosen).fetchone():
            return int(found[0])
        marks = ", ".join("?" * len(values))
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        return int(self.connection.execute(insert, values).lastrowid or 0)

    def sources(self) -> list[Source]:
        """Return the sources with readings, the oldest first."""
        with self._errors():
            rows = self.connection.execute(
                "SELECT s.name, s.label, min(time), max(time), count(*),"
                " json_group_array(DISTINCT site) FROM reading r JOIN source s ON s.id = r.source"
                " JOIN series ON series.id = r.series GROUP BY s.id ORDER BY min(time)"
            ).fetchall()
        return [
            Source(name, label, first, last, count, tuple(sorted(json.loads(sites))))
            for name, label, first, last, count, sites in rows
        ]

    def provenance(self) -> dict[int, dict[str, str]]:
        """Return the facts of each provenance by its number."""
        with self._errors():
            rows = self.connection.execute("SELECT id, facts FROM provenance").fetchall()
        return {number: json.loads(facts) for number, facts in rows}

    def prune(self, before: float) -> int:
        """Remove the readings before a time; return how many, and give their space back."""
        with self._errors():
            with self.connection as db:
                count = db.execute("DELETE FROM reading WHERE time < ?", (before,)).rowcount
                for table in ("series", "provenance", "bounds"):
                    db.execute(
                        f"DELETE FROM {table} WHERE id NOT IN"  # noqa: S608 - names of our own
                        f" (SELECT {table} FROM reading WHERE {table} IS NOT NULL)"
                    )
            self.connection.execute("VACUUM")
        return count

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _refusal(self.path, error) from error


class _Ids:
    """The numbers of keys, provenance and bounds while readings are added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._series: dict[Key, int] = {}
        self._bounds: dict[Bounds, int] = {}
        # By identity: the readings of a night share one mapping of a hundred facts.
        self._provenance: dict[int, tuple[Mapping[str, str], int]] = {}
        self.inserted = 0

    def of(self, reading: Reading) -> tuple[object, ...]:
        """Return the columns of a reading before its source."""
        series = self._series.get(reading.key)
        if series is None:
            names = _KEY.split(", ")
            detail = json.dumps(to_json(reading.series)) if reading.series else None
            values = (*astuple(reading.key), detail)
            series = self._number("series", (*names, "detail"), values, names)
            self._series[reading.key] = series
        bounds = self._bounds.get(reading.bounds)
        if bounds is None and reading.bounds != NO_BOUNDS:
            bounds = self._number("bounds", _BOUNDS.split(", "), astuple(reading.bounds))
            self._bounds[reading.bounds] = bounds
        facts = reading.provenance
        known = self._provenance.get(id(facts))
        if known is None and facts:
            text = json.dumps(dict(facts), sort_keys=True)
            known = (facts, self._number("provenance", ["facts"], (text,)))
            self._provenance[id(facts)] = known
        return series, reading.time, reading.value, known[1] if known else None, bounds

    def _number(
        self,
        table: str,
        columns: Sequence[str],
        values: tuple[object, ...],
        key: Sequence[str] = (),
    ) -> int:
        before = self._store.connection.total_changes
        number = self._store.number(table, columns, values, key)
        self.inserted += self._store.connection.total_changes - before
        return number


@contextmanager
def open_store(where: Path, *, to_write: bool = False) -> Iterator[Store]:
    """Open the store in a directory; it is made if it is missing.

    Without ``to_write``, a store that cannot be written or locked is copied to memory. Raises
    ``BusbarError`` if the store cannot be read, or not be written with ``to_write``.
    """
    path = where / FILE
    try:
        store = Store(path, _writable(path), kept=True)
    except (OSError, sqlite3.Error) as error:
        if to_write or not _only_unwritable(error):
            raise _refusal(path, error) from error
        store = Store(path, _copied(path), kept=False)
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
        with sqlite3.connect(uri, uri=True) as stored:
            stored.backup(memory)
        stored.close()
        (version,) = memory.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise _refusal(path, error) from error
    _refuse_other_version(path, version)
    return memory


def _refuse_other_version(path: Path, version: int) -> None:
    if version != _VERSION:
        raise BusbarError(
            f"is a history of version {version}, this Busbar reads {_VERSION}",
            where=str(path),
            hint="use the Busbar that wrote it, or another directory in BUSBAR_HISTORY",
        )


def _only_unwritable(error: Exception) -> bool:
    """Whether the store may still be readable."""
    return isinstance(error, OSError) or any(
        word in str(error)
        for word in ("readonly", "unable to open", "locking protocol", "disk I/O error", "full")
    )


def _refusal(path: Path, error: Exception) -> BusbarError:
    what = str(error)
    if isinstance(error, OSError):
        what = error.strerror or what
    hint = "put the history on a local disk of one host: BUSBAR_HISTORY=DIR"
    if "full" in what or "No space" in what:
        hint = "make room, or name another directory in BUSBAR_HISTORY"
    elif "not a database" in what or "malformed" in what:
        hint = "move it away; the sessions of ReFrame are read again, import files again"
    elif "locked" in what:
        hint = "another command writes it; wait and repeat"
    return BusbarError(f"the history cannot be used: {what}", where=str(path), hint=hint)
