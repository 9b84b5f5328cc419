# SPDX-License-Identifier: MIT
"""ReFrame's result store, the only place that reads its tables.

ReFrame's own module is no help here: it needs a site configuration in this process, writes its
indexes and takes a lock even to read, which a read-only file system refuses, and decodes all
sessions at once. Its schema is not an interface, so the version that it states is checked. The
reports inside are of ReFrame's documented format, as `busbar.history.reframe_report` reads them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from busbar.errors import BusbarError

FILE = "results.db"
_VERSION = "1.0"
"""Of ReFrame 4.8 to 4.10."""


def new_sessions(directory: Path, known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield id and report of each session that is not known, the oldest first.

    Raises ``BusbarError`` if there is a store that cannot be read.
    """
    path = directory / FILE
    if not path.exists():
        return
    try:
        yield from _sessions(path, known)
    except (sqlite3.Error, OSError) as error:
        raise BusbarError(
            f"ReFrame's results cannot be read: {error}",
            where=str(path),
            hint="see reframe --list-stored-sessions",
        ) from error


def _sessions(path: Path, known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    with closing(_connect(path)) as db:
        tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        if not {"sessions", "metadata"} <= tables:
            return  # ReFrame could only begin it
        version = db.execute("SELECT schema_version FROM metadata").fetchone()
        if version and version[0] != _VERSION:
            raise BusbarError(
                f"ReFrame's results are of version {version[0]}, this Busbar reads {_VERSION}",
                where=str(path),
                hint="import the reports instead: busbar history import reframe.json",
            )
        uuids = db.execute("SELECT uuid FROM sessions ORDER BY session_start_unix").fetchall()
        for (uuid,) in uuids:
            if known(uuid):
                continue
            row = db.execute("SELECT json_blob FROM sessions WHERE uuid = ?", (uuid,)).fetchone()
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
