# SPDX-License-Identifier: MIT
"""Series of nights from the stored readings, and new sessions of ReFrame into the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from busbar.data import history_directory
from busbar.errors import BusbarError
from busbar.history import reframe_report, reframe_store
from busbar.history.model import NO_BOUNDS, Bounds, Key, Series
from busbar.history.store import Store, open_store

DAY_S = 86400
SESSION = "session "
"""Before ReFrame's id in the name of a source."""


@contextmanager
def history(where: Path | None = None, *, to_write: bool = False) -> Iterator[Store]:
    """Open the store, and add the sessions that ReFrame has stored since."""
    path = where or history_directory()
    with open_store(path, to_write=to_write) as store:
        for uuid, report in reframe_store.new_sessions(path, lambda u: store.has(SESSION + u)):
            try:
                session = reframe_report.parse(report)
            except ValueError as error:
                raise BusbarError(
                    f"session {uuid} is not a report: {error}",
                    where=str(path / reframe_store.FILE),
                    hint=f"remove it: reframe --delete-stored-sessions={uuid}",
                ) from error
            store.add(SESSION + uuid, session.host, session.readings)
        yield store


def read_series(store: Store, site: str = "", since: float | None = None) -> list[Series]:
    """Return the series of the store, or of one site; ``since`` leaves out earlier nights."""
    db = store.connection
    keys = {
        row[0]: Key(*row[1:9])
        for row in db.execute("SELECT * FROM series")
        if not site or row[1] == site
    }
    bounds = {
        number: Bounds(low, typical, high, most, bool(calibrated), model)
        for number, low, typical, high, most, calibrated, model in db.execute(
            "SELECT * FROM bounds"
        )
    }
    rows = _rows(store, since)
    offsets = _night_offsets(rows, keys)
    starts = np.flatnonzero(np.diff(rows.series, prepend=-1))
    ends = np.append(starts, len(rows.series))[1:]
    found = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        key = keys.get(int(rows.series[start]))
        if key is None:
            continue
        found.append(_series(key, rows, slice(start, end), offsets[key.site], bounds))
    return sorted(found, key=lambda series: series.key)


class _Rows:
    """The columns of the readings, in order of series and time."""

    def __init__(self, table: NDArray[np.float64]) -> None:
        self.series = table[:, 0].astype(np.int64)
        self.times = table[:, 1]
        self.values = table[:, 2]
        self.provenance = table[:, 3].astype(np.int64)
        self.bounds = table[:, 4].astype(np.int64)


def _rows(store: Store, since: float | None) -> _Rows:
    query = (
        "SELECT series, time, value, ifnull(provenance, 0), ifnull(bounds, 0) FROM reading"
        " WHERE time >= ? ORDER BY series, time"
    )
    cursor = store.connection.execute(query, (since if since is not None else -1e18,))
    parts = [np.empty((0, 5))]
    while rows := cursor.fetchmany(1 << 16):
        parts.append(np.array(rows, dtype=np.float64))
    return _Rows(np.concatenate(parts))


def _night_offsets(rows: _Rows, keys: dict[int, Key]) -> dict[str, float]:
    """Return the time of day at which the night of each site ends: in its longest pause."""
    sites: dict[str, list[int]] = {}
    for number, key in keys.items():
        sites.setdefault(key.site, []).append(number)
    offsets = {}
    for site, numbers in sites.items():
        times = rows.times[np.isin(rows.series, numbers)]
        minutes = np.unique((times % DAY_S) // 60)
        if not len(minutes):
            offsets[site] = 0.0
            continue
        pauses = np.diff(minutes, append=minutes[0] + DAY_S / 60)
        longest = int(pauses.argmax())
        offsets[site] = float((minutes[longest] + pauses[longest] / 2) * 60 % DAY_S)
    return offsets


def _series(
    key: Key, rows: _Rows, part: slice, offset: float, bounds: dict[int, Bounds]
) -> Series:
    times, values = rows.times[part], rows.values[part]
    days = np.floor((times - offset) / DAY_S)
    order = np.lexsort((values, days))
    first = np.flatnonzero(np.diff(days, prepend=days[0] - 1))
    count = np.diff(first, append=len(days))
    ordered = values[order]
    medians = ordered[first + (count - 1) // 2] / 2 + ordered[first + count // 2] / 2
    last = first + count - 1
    judged = rows.bounds[part][rows.bounds[part] > 0]
    return Series(
        key=key,
        times=times[last],
        values=medians,
        provenance=rows.provenance[part][last],
        bounds=bounds.get(int(judged[-1]), NO_BOUNDS) if len(judged) else NO_BOUNDS,
        days=days[last].astype(np.int64),
        readings=len(values),
    )
