# SPDX-License-Identifier: MIT
"""Nights of the history as the results that ``busbar site calibrate`` reads.

Only nights since the last change of each series count: before it, the machine was another one. A
night with a reading outside of its band is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from busbar.engine.check_document import CheckDocument, ResultRow
from busbar.history.model import Event, HistoryKey, NightSeries, iso
from busbar.history.read import DAY_S
from busbar.site.calibration import SeriesKey
from busbar.verdict import Verdict


@dataclass(frozen=True)
class Baseline:
    """The nights to calibrate with."""

    documents: tuple[CheckDocument, ...]
    left_out: int
    """Nights with a reading outside of its band."""
    too_new: tuple[HistoryKey, ...]
    """Series that changed within these nights."""


def baseline(
    site: str, series: Sequence[NightSeries], events: Sequence[Event], nights: int
) -> Baseline:
    """Return the last ``nights`` of a site."""
    last = max((each.times[-1] for each in series), default=0.0)
    first = last - nights * DAY_S
    changed = {change.key for event in events for change in event.changes if change.dated > first}
    rows: dict[int, list[ResultRow]] = defaultdict(list)
    times: dict[int, float] = {}
    for each in series:
        if each.detail and each.key not in changed:
            for time, day, value in zip(each.times, each.days, each.values, strict=True):
                if time > first:
                    rows[int(day)].append(_row(each, each.detail, float(value)))
                    times[int(day)] = max(float(time), times.get(int(day), 0.0))
    healthy = [
        CheckDocument(
            site=site,
            time=iso(times[day]),
            results=tuple(found),
            verdict=Verdict.PASS,
        )
        for day, found in sorted(rows.items())
        if all(row.verdict is Verdict.PASS for row in found)
    ]
    too_new = tuple(sorted(each.key for each in series if each.detail and each.key in changed))
    return Baseline(tuple(healthy), len(rows) - len(healthy), too_new)


def _row(series: NightSeries, detail: SeriesKey, value: float) -> ResultRow:
    bounds, key = series.bounds, series.key
    time = key.less_is_better
    worse = bounds.high is not None and value > bounds.high
    if not time:
        worse = bounds.low is not None and value < bounds.low
    return ResultRow(
        check=key.check,
        verdict=Verdict.DEGRADED if worse else Verdict.PASS,
        where=key.node,
        metric="latency" if time else "bandwidth",
        buffers=detail.buffers,
        bytes=detail.bytes,
        gb_per_s=None if time else value,
        us=value if time else None,
        **vars(bounds),
        message="outside of its band" if worse else "",
        series=detail,
        partition=key.partition,
    )
