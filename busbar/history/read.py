# SPDX-License-Identifier: MIT
"""Series of nights from the stored readings, and new sessions of ReFrame into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np

from busbar.data import history_directory
from busbar.errors import value_error
from busbar.history import reframe
from busbar.history.model import NO_BOUNDS, HistoryBounds, HistoryKey, NightSeries
from busbar.history.statistic import Array
from busbar.history.store import HistoryStore, altered, open_store

DAY_S = 86400
SESSION = "session "
"""Before ReFrame's id in the name of a source."""


@contextmanager
def history(where: Path | None = None, *, to_write: bool = False) -> Iterator[HistoryStore]:
    """Open the store, and add the sessions that ReFrame has stored since."""
    path = where or history_directory()
    with open_store(path, to_write=to_write) as store:
        for uuid, report in reframe.new_sessions(path, lambda u: store.has(SESSION + u)):
            hint = f"remove it: reframe --delete-stored-sessions={uuid}"
            what = f"session {uuid} is not a report: {{}}"
            with value_error(what, path / reframe.FILE, hint):
                session = reframe.parse_report(report)
            store.add(SESSION + uuid, session.host, session.records)
        yield store


def read_series(
    store: HistoryStore, site: str = "", since: float | None = None, source: str = ""
) -> list[NightSeries]:
    """Return the series of the store, a site or a source; ``since`` leaves out earlier nights."""
    known = store.series()
    bounds = store.bounds() | {0: NO_BOUNDS}
    rows = store.readings(since, source)
    ends: dict[str, float] = {}
    found = []
    for column, of in ((0, known), (3, {0, *store.provenance()}), (4, bounds)):
        if unknown := set(np.unique(rows[:, column])) - {*of}:
            raise altered(store.path, f"a reading names row {min(unknown):.0f}, which is missing")
    edges = np.flatnonzero(np.diff(rows[:, 0], prepend=-1, append=-1))
    for start, end in pairwise(edges.tolist()):
        key = known[int(rows[start, 0])]
        if not site or key.site == site:
            if key.site not in ends:
                numbers = [number for number, each in known.items() if each.site == key.site]
                ends[key.site] = _night_end(rows[np.isin(rows[:, 0], numbers), 1])
            found.append(_series(key, rows[start:end], ends[key.site], bounds))
    return sorted(found, key=lambda series: series.key)


def _night_end(times: Array) -> float:
    """Return the time of day at which the night of a site ends: in its longest pause."""
    minutes = np.unique((times % DAY_S) // 60)
    pauses = np.diff(minutes, append=minutes[0] + DAY_S / 60)
    longest = int(pauses.argmax())
    return float((minutes[longest] + pauses[longest] / 2) * 60 % DAY_S)


def _series(
    key: HistoryKey, rows: Array, night_end: float, bounds: Mapping[int, HistoryBounds]
) -> NightSeries:
    _, times, values, provenance, judged = rows.T
    days = np.floor((times - night_end) / DAY_S)
    order = np.lexsort((values, days))
    first = np.flatnonzero(np.diff(days, prepend=days[0] - 1))
    count = np.diff(first, append=len(days))
    ordered = values[order]
    last = first + count - 1
    return NightSeries(
        key=key,
        times=times[last],
        values=ordered[first + (count - 1) // 2] / 2 + ordered[first + count // 2] / 2,
        provenance=provenance[last].astype(np.int64),
        bounds=bounds[int(next(iter(judged[judged > 0][::-1]), 0))],
        days=days[last].astype(np.int64),
        readings=len(values),
    )
