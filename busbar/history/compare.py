# SPDX-License-Identifier: MIT
"""Compare readings of two selections, series by series: sessions, deliveries, lanes, drivers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np

from busbar.data import history_directory
from busbar.document import in_json, written
from busbar.errors import BusbarError, suggestion, value_error
from busbar.history.model import HistoryKey, Ratio, iso, ratio_of
from busbar.history.read import DAY_S
from busbar.history.statistic import Array
from busbar.history.store import HistoryStore
from busbar.parse.tables import beside, refused
from busbar.units import moment
from busbar.words import grouped

_OF_KEY = tuple(each.name for each in fields(HistoryKey))
_RANGE = ".."
_SHORTEST = 4
"""Characters of an id that hardly begin two of them."""
EMPTY = (
    "the history in {} is empty; next: busbar check, busbar history import FILE, or "
    "BUSBAR_HISTORY=DIR with another history"
)
"""What to do without readings; the parameter is the directory."""


@dataclass(frozen=True)
class Selection:
    """Which readings: of a session, of a time, or with a value of a key or of provenance."""

    name: str = ""
    """``lane``, ``delivery``, ``node``, ``driver``, ``lock.libfabric``..."""
    value: str = ""
    source: str = ""
    """The beginning of the id of a session or file."""
    first: float = -np.inf
    last: float = np.inf
    begun: float = -np.inf
    """The minute of the first or last reading of a session or file."""

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Parse ``lane=ucx-1.14``, a range of time, a day, a minute or the id of a session."""
        if _RANGE in text:
            begin, _, end = text.partition(_RANGE)
            with value_error("{}", text, "as in 2026-01-01.."):
                return cls(
                    first=moment(begin) if begin else -np.inf, last=moment(end) if end else np.inf
                )
        name, equals, value = text.partition("=")
        if equals and name:
            return cls(name=name, value=value)
        with suppress(ValueError):  # not a time: the id of a session
            first = moment(text)
            return cls(begun=first) if "T" in text else cls(first=first, last=first + DAY_S)
        if len(text) < _SHORTEST:
            raise refused(__file__, "short", text=text, shortest=_SHORTEST)
        return cls(source=text)


@dataclass(frozen=True)
class Compared:
    """One series in two selections; what these differ in is empty."""

    key: HistoryKey = field(metadata=written(inline=True))
    a: float
    """Median of the first selection."""
    b: float
    """Median of the second."""
    readings_a: int
    """Readings of the first selection."""
    readings_b: int
    """Readings of the second."""
    ratio: Ratio = field(metadata=written(inline=True))
    """The second over the first."""

    @property
    @in_json()
    def differs(self) -> bool:
        """Whether the interval excludes 1."""
        return self.ratio.excludes_one


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two selections, series by series."""

    schema: Literal["busbar-history-compare/1"] = "busbar-history-compare/1"
    """The schema of this document."""
    a: str
    """The first selection."""
    b: str
    """The second."""
    series: tuple[Compared, ...]
    """Those that both have, the largest difference first."""


def compare(store: HistoryStore, a: str, b: str, site: str = "") -> Comparison:
    """Return the series that both selections have, the largest difference first.

    Raises ``BusbarError`` for a selection without readings.
    """
    selections = [Selection.parse(text) for text in (a, b)]
    # What is compared, or comes with it, does not identify a series.
    free = {s.name for s in selections if s.name in _OF_KEY}
    free |= {"lane", "delivery"} if any(not s.name for s in selections) else set()
    groups = [_readings(store, each, free, site) for each in selections]
    for text, group in zip((a, b), groups, strict=True):
        if not group:
            raise BusbarError("no readings", where=text, hint=_hint(store, text))
    found = [
        _compared(key, groups[0][key], groups[1][key])
        for key in sorted(groups[0].keys() & groups[1].keys())
    ]
    found.sort(key=lambda each: -abs(np.log(each.ratio.value)))
    return Comparison(a=a, b=b, series=tuple(found))


def _compared(key: HistoryKey, a: Array, b: Array) -> Compared:
    before, after, ratio = float(np.median(a)), float(np.median(b)), ratio_of(a, b)
    if ratio.low is None:  # of few readings, the ratio of what is shown
        ratio = Ratio(after / before)
    return Compared(key, before, after, len(a), len(b), ratio)


def _readings(
    store: HistoryStore, selection: Selection, free: set[str], site: str
) -> Mapping[HistoryKey, Array]:
    numbers = {
        number
        for number, facts in store.provenance().items()
        if selection.name and facts.get(selection.name) == selection.value
    }
    of_key = selection.name in _OF_KEY
    keys = {
        number: replace(key, **dict.fromkeys(free, ""))
        for number, key in store.series().items()
        if (not site or key.site == site)
        and (not of_key or getattr(key, selection.name) == selection.value)
    }
    asked: list[object] = [selection.first, selection.last, selection.source, selection.source]
    asked += [selection.begun, selection.begun]
    rows = store.connection.execute(beside(__file__)["readings"], asked)
    found = grouped(
        (keys[series], value)
        for value, provenance, series in rows
        if series in keys and (not selection.name or of_key or provenance in numbers)
    )
    return {key: np.array(values) for key, values in found.items()}


def _hint(store: HistoryStore, text: str) -> str:
    if not store.sources():
        return EMPTY.format(history_directory())
    name = text.partition("=")[0]
    names = {*_OF_KEY, *(fact for facts in store.provenance().values() for fact in facts)}
    if "=" in text and name not in names:
        return suggestion(name, sorted(names, key=lambda each: ("." in each, each)))
    days = sorted({iso(each.last)[:10] for each in store.sources()})[-3:]
    return (
        f"name a session or minute of busbar history list, or a day: {', '.join(days) or 'none'}"
    )
