# SPDX-License-Identifier: MIT
"""The records of the history: series, their changes with intervals, and what differed.

:func:`busbar.history.read.read_series` and :func:`busbar.history.events.find_events` return them.
Those that commands print are their JSON documents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from math import inf, isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from busbar.document import Contradictions, in_json, written
from busbar.history.statistic import Array

_EXACT = 20
"""Up to this number of readings, the distribution of U is counted; above, it is nearly normal."""
_MOST = 400
_NORMAL = 1.959964
_TAIL = 0.025


def rounded(value: float) -> float | None:
    """Return a number as documents have it; they have null for infinity."""
    return round(value, 6)


@dataclass(frozen=True)
class Ratio:
    """A ratio and its 95 % interval."""

    value: float = field(metadata=written("ratio", by=rounded))
    """The median of the ratios of all pairs, of one before and one after; null if before was 0."""
    low: float | None = field(default=None, metadata=written("ratio_low", by=rounded))
    """Lower end of the 95 % interval of ``ratio``; null for fewer than 4 readings of one."""
    high: float | None = field(default=None, metadata=written("ratio_high", by=rounded))
    """Upper end."""

    @property
    def excludes_one(self) -> bool:
        """Whether both groups differ."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def ratio_of(old: Array, new: Array) -> Ratio:
    """Return the ratio of two groups of readings and its interval, by ranks.

    All ratios of a reading of the one to a reading of the other group are sorted. Their median is
    the ratio, and the interval ends at those whose rank the Mann-Whitney statistic U leaves out
    with 2.5 % on each side (J. L. Hodges, E. L. Lehmann, Annals of Mathematical Statistics 34,
    1963). It assumes no distribution. The ratio of both medians is another number, which this
    interval may exclude. Fewer than 4 readings on each side have no interval.
    """
    old, new = old[-_MOST:], new[-_MOST:]
    if old.min() <= 0 or new.min() <= 0:
        before = float(np.median(old))
        return Ratio(float(np.median(new)) / before if before else math.inf)
    ratios = np.exp(np.sort((np.log(new)[:, None] - np.log(old)[None, :]).ravel()))
    value = float(np.median(ratios))
    skipped = _left_out(len(old), len(new))
    if skipped is None:
        return Ratio(value)
    return Ratio(value, float(ratios[skipped]), float(ratios[-1 - skipped]))


def _left_out(m: int, n: int) -> int | None:
    """Return the number of sorted ratios that the interval omits on each side."""
    if min(m, n) < 4:
        return None
    if max(m, n) > _EXACT:
        deviation = math.sqrt(m * n * (m + n + 1) / 12)
        return max(0, math.floor(m * n / 2 - _NORMAL * deviation))
    # In how many orders U has each value; of ``k`` new readings among ``n`` old ones, the largest
    # reading is new and above all old ones, or it is old.
    orders = [np.ones(1)] * (n + 1)
    for k in range(1, m + 1):
        row = [np.ones(1)]
        for above in range(1, n + 1):
            counts = np.zeros(k * above + 1)
            counts[above:] = orders[above]
            counts[: len(row[-1])] += row[-1]
            row.append(counts)
        orders = row
    below = np.cumsum(orders[n]) / orders[n].sum()
    # U < skipped + 1 has at most the tail.
    return int(np.searchsorted(below, _TAIL, side="right")) - 1 if below[0] <= _TAIL else None


def iso(time: float) -> str:
    """Return a time in ISO 8601, UTC."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, order=True)
class HistoryKey:
    """What the readings of a series have in common."""

    site: str
    """Name of the site."""
    partition: str
    """Partition of the site."""
    node: str
    """The node, or several with commas."""
    check: str
    """The check without its parameters, or the benchmark of an output."""
    metric: str
    """What was measured, with its size: ``all_reduce busbw D D 16 MiB``."""
    unit: str
    """``GB/s``, ``us``... A time is better if it is less."""
    lane: str = ""
    """Lane of UCX or family of MPI."""
    delivery: str = ""
    """How the stack reached the job: ``wheels``, ``spack``, ``image``..."""

    @property
    def name(self) -> str:
        """The series in words, for people."""
        place = ":".join(part for part in (self.site, self.partition) if part)
        metric = self.metric.removeprefix(f"{self.check} ")
        words = (place, self.node, self.check, metric, self.lane, self.delivery)
        return " ".join(word for word in words if word)

    @property
    def less_is_better(self) -> bool:
        """Whether the reading is a time."""
        return self.unit in TIMES


TIMES = frozenset({"us", "ms", "s", "ns", "seconds", "min"})
"""Units of which less is better."""


@dataclass(frozen=True)
class HistoryBounds:
    """What the last judged reading was compared with, in the unit of the series."""

    low: float | None = None
    typical: float | None = None
    high: float | None = None
    limit: float | None = None
    calibrated: bool = False
    """Whether the band is the site's own calibration."""
    model: float | None = None
    """What links and family call typical if it is."""

    def contradictions(self) -> Contradictions:
        """Yield each bound that is not a number, or less than the one before it."""
        known = [(n, v) for n in ("low", "typical", "high") if (v := getattr(self, n)) is not None]
        for (_, before), (name, value) in pairwise([("", -inf), *known]):
            if not (isfinite(value) and before <= value):
                yield name, f"is {value:g}, which is not a number or below the bound before it"

    @classmethod
    def of(cls, row: object) -> HistoryBounds:
        """Return the keys of anything that has them."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})


NO_BOUNDS = HistoryBounds()


@dataclass(frozen=True)
class NightSeries:
    """The readings of one series, one for each night: the median of that night's readings."""

    key: HistoryKey
    times: NDArray[np.float64]
    """Time of the last reading of each night, in seconds since 1970, ascending."""
    values: NDArray[np.float64]
    provenance: NDArray[np.int64]
    """The number of the provenance of each night; 0 if it is not known."""
    days: NDArray[np.int64]
    """The day of each night: consecutive nights have consecutive numbers."""
    bounds: HistoryBounds = NO_BOUNDS
    readings: int = 0
    """Readings of all nights."""


def _to_thousandths(value: float) -> float:
    return round(value, 3)


@dataclass(frozen=True)
class HistorySeries:
    """One series with its nights."""

    key: HistoryKey = field(metadata=written(inline=True))
    low: float | None
    """Start of the band of the last judged reading."""
    typical: float | None
    """Typical reading."""
    high: float | None
    """End of the band."""
    limit: float | None
    """What the links carry at most."""
    readings: int
    """Readings of all nights."""
    times: tuple[str, ...]
    """The last reading of each night, ISO 8601."""
    values: tuple[float, ...]
    """The median of each night."""
    provenance: Mapping[str, str]
    """Of the last night."""

    @classmethod
    def of(cls, series: NightSeries, facts: Mapping[int, Mapping[str, str]]) -> HistorySeries:
        """Return the document of a series."""
        bounds = series.bounds
        return cls(
            key=series.key,
            low=bounds.low,
            typical=bounds.typical,
            high=bounds.high,
            limit=bounds.limit,
            readings=series.readings,
            times=tuple(map(iso, series.times)),
            values=tuple(series.values.tolist()),
            provenance=facts.get(int(series.provenance[-1]), {}),
        )


@dataclass(frozen=True, kw_only=True)
class HistoryShow:
    """Series of the history."""

    schema: Literal["busbar-history-show/1"] = "busbar-history-show/1"
    """The schema of this document."""
    series: tuple[HistorySeries, ...]
    """By site, partition, node, check and metric."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A step of one series, or a drift. Times are seconds since 1970."""

    key: HistoryKey = field(metadata=written(inline=True))
    since: float = field(metadata=written(by=iso))
    """The first night at the new level, ISO 8601; of a drift, of the weeks that showed it."""
    last_before: float = field(metadata=written(by=iso))
    """The night before that."""
    found: float = field(metadata=written(by=iso))
    """The night that made it certain."""
    before: float
    """Median before; of a drift, of its first two weeks."""
    after: float
    """Median after; of a drift, of its last two weeks."""
    ratio: Ratio = field(metadata=written(inline=True))
    until: float | None = field(default=None, metadata=written(by=iso))
    """Of a drift, the last night of these weeks; null for a step."""
    weekly: float | None = field(default=None, metadata=written(by=rounded))
    """Weekly change of a drift relative to the other nodes, as a share of the level; null for a
    step."""
    score: float = field(metadata=written(by=_to_thousandths))
    """The statistic over its threshold."""
    worse: bool
    """Whether it is a change for the worse."""
    bounds: HistoryBounds = field(default=NO_BOUNDS, metadata=written(hidden=True))

    @property
    def dated(self) -> float:
        """The night that it is listed under: of a drift, the one that showed it."""
        return self.since if self.weekly is None else self.found

    @property
    @in_json()
    def below_band(self) -> bool:
        """Whether the new level is worse than the band of the last judged reading."""
        if self.key.less_is_better:
            return self.bounds.high is not None and self.after > self.bounds.high
        return self.bounds.low is not None and self.after < self.bounds.low


@dataclass(frozen=True)
class Difference:
    """A fact of provenance before and after an event."""

    name: str
    """``driver``, ``lock.libfabric``, ``env.NCCL_ALGO``..."""
    before: str | None
    """Null if it is not known."""
    after: str | None
    """Null if it is not known."""
    weight: float
    """How well it accounts for the event, 0 to 1."""
    reason: str = ""
    """What the weight is from."""

    @property
    @in_json(after="after")
    def changed(self) -> bool:
        """Whether both are known and differ."""
        return None not in (self.before, self.after) and self.before != self.after

    @property
    @in_json(after="weight")
    def text(self) -> str:
        """``libfabric 2.0 -> 2.2 in the lock``."""
        where = " in the lock" if self.name.startswith("lock.") else ""
        name = self.name.removeprefix("lock.").removeprefix("env.")
        if self.changed:
            return f"{name} {self.before} -> {self.after}{where}"
        if self.before is None and self.after is None:
            return f"{name} not known"
        if None in (self.before, self.after):
            return f"{name} not known {'before' if self.before is None else 'after'}{where}"
        return f"{name} unchanged{where}"


@dataclass(frozen=True)
class Event:
    """Series that changed at the same time."""

    since: float = field(metadata=written(by=iso))
    """The first night after it, ISO 8601; of drifts, the night that showed them."""
    shared: tuple[str, ...]
    """What the series that moved have in common, and the others do not: ``node n3``."""
    changes: tuple[Change, ...]
    """The series that moved, the clearest first."""
    differences: tuple[Difference, ...]
    """The most likely first; then what did not change. Empty for drifts."""

    @property
    def drift(self) -> bool:
        """Whether it consists of drifts, which are events of their own."""
        return all(change.weekly is not None for change in self.changes)

    @property
    @in_json(after="since")
    def worse(self) -> bool:
        """Whether a series became worse."""
        return any(change.worse for change in self.changes)
