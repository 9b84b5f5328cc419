# SPDX-License-Identifier: MIT
"""The records of the history as the JSON documents that commands print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

from busbar.documents.history import (
    ChangeRow,
    ChangesDocument,
    ComparedRow,
    DifferenceRow,
    EventRow,
    HistorySeriesRow,
    SeriesKeyRow,
)
from busbar.history.compare import Compared
from busbar.history.model import Change, Difference, Event, Key, Series


def iso(time: float) -> str:
    """Return a time in ISO 8601, UTC."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


def key_row(key: Key) -> SeriesKeyRow:
    """Return a key as documents have it."""
    return cast(SeriesKeyRow, asdict(key))


def changes_document(events: Sequence[Event], series: Sequence[Series]) -> ChangesDocument:
    """Return what ``busbar history changes --json`` prints."""
    return {
        "schema": "busbar-changes/1",
        "series": len(series),
        "nights": max((len(each.times) for each in series), default=0),
        "events": [_event(event) for event in events],
    }


def _event(event: Event) -> EventRow:
    return {
        "since": iso(event.since),
        "worse": event.worse,
        "shared": list(event.shared),
        "changes": [_change(change) for change in event.changes],
        "differences": [_difference(each) for each in event.differences],
    }


def _change(change: Change) -> ChangeRow:
    return {
        **key_row(change.key),
        "since": iso(change.since),
        "last_before": iso(change.last_before),
        "found": iso(change.found),
        "before": change.before,
        "after": change.after,
        "ratio": _rounded(change.ratio.value),
        "ratio_low": _rounded(change.ratio.low),
        "ratio_high": _rounded(change.ratio.high),
        "until": None if change.until is None else iso(change.until),
        "weekly": _rounded(change.weekly),
        "score": round(change.score, 3),
        "worse": change.worse,
        "below_band": change.below_band,
    }


def _difference(difference: Difference) -> DifferenceRow:
    return {
        "name": difference.name,
        "before": difference.before,
        "after": difference.after,
        "changed": difference.changed,
        "weight": difference.weight,
        "text": difference.text,
        "reason": difference.reason,
    }


def series_row(series: Series, provenance: Mapping[int, Mapping[str, str]]) -> HistorySeriesRow:
    """Return a series as ``busbar history show --json`` prints it."""
    bounds = series.bounds
    return {
        **key_row(series.key),
        "low": bounds.low,
        "typical": bounds.typical,
        "high": bounds.high,
        "limit": bounds.limit,
        "readings": series.readings,
        "times": [iso(time) for time in series.times],
        "values": series.values.tolist(),
        "provenance": dict(provenance.get(int(series.provenance[-1]), {})),
    }


def compared_row(compared: Compared) -> ComparedRow:
    """Return a comparison of one series."""
    return {
        **key_row(compared.key),
        "a": compared.a,
        "b": compared.b,
        "readings_a": compared.readings_a,
        "readings_b": compared.readings_b,
        "ratio": _rounded(compared.ratio.value),
        "ratio_low": _rounded(compared.ratio.low),
        "ratio_high": _rounded(compared.ratio.high),
        "differs": compared.ratio.excludes_one,
    }


def _rounded(value: float | None) -> Any:
    return None if value is None or not math.isfinite(value) else round(value, 6)
