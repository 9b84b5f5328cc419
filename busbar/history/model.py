# SPDX-License-Identifier: MIT
"""The records of the history: series, their changes, and what differed beside them.

:func:`busbar.history.read.read_series` and :func:`busbar.history.events.find_events` return them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from busbar.history.interval import Ratio


@dataclass(frozen=True, order=True)
class Key:
    """What readings of one series have in common."""

    site: str
    partition: str
    node: str
    """The node, or several with commas."""
    check: str
    """The check without its parameters."""
    metric: str
    """What was measured: ``busbw all_reduce D D 16 MiB``."""
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
class Bounds:
    """What the last judged reading was compared with, in the unit of the series."""

    low: float | None = None
    typical: float | None = None
    high: float | None = None
    limit: float | None = None
    calibrated: bool = False
    """Whether the band is the site's own calibration."""
    model: float | None = None
    """What links and family call typical if it is."""


NO_BOUNDS = Bounds()


@dataclass(frozen=True)
class Series:
    """The readings of one series, one for each night: the median of that night's readings."""

    key: Key
    times: NDArray[np.float64]
    """Time of the last reading of each night, in seconds since 1970, ascending."""
    values: NDArray[np.float64]
    provenance: NDArray[np.int64]
    """The number of the provenance of each night; 0 if it is not known."""
    days: NDArray[np.int64]
    """The day of each night: consecutive nights have consecutive numbers."""
    bounds: Bounds = NO_BOUNDS
    readings: int = 0
    """Readings of all nights."""


@dataclass(frozen=True)
class Change:
    """A step of one series, or a drift."""

    key: Key
    since: float
    """Time of the first night at the new level, in seconds since 1970; of a drift, of the first
    night of the weeks that showed it."""
    last_before: float
    """Time of the last night at the old level."""
    found: float
    """Time of the night that made it certain."""
    before: float
    """Median before."""
    after: float
    """Median after."""
    ratio: Ratio
    """Of the nights after to those before."""
    score: float
    """The statistic over its threshold; 1 and more is a change."""
    worse: bool
    """Whether it is a change for the worse."""
    bounds: Bounds = NO_BOUNDS
    until: float | None = None
    """Of a drift, the last night of the weeks that showed it; None for a step."""
    weekly: float | None = None
    """Of a drift, the share of the level that it moves in a week; None for a step."""

    @property
    def dated(self) -> float:
        """The night that it is listed under: of a drift, the one that showed it."""
        return self.since if self.weekly is None else self.found

    @property
    def below_band(self) -> bool:
        """Whether the new level is worse than the band; False without a band."""
        if self.key.less_is_better:
            return self.bounds.high is not None and self.after > self.bounds.high
        return self.bounds.low is not None and self.after < self.bounds.low


@dataclass(frozen=True)
class Difference:
    """One fact of provenance before and after a change."""

    name: str
    """``lock.libfabric``, ``driver``, ``env.NCCL_ALGO``..."""
    before: str | None
    """None if it is not known."""
    after: str | None
    weight: float
    """How well it accounts for the change, 0 to 1; 0 for what did not change."""
    reason: str = ""
    """Why it has this weight, in one sentence."""

    @property
    def changed(self) -> bool:
        """Whether both are known and differ."""
        return None not in (self.before, self.after) and self.before != self.after

    @property
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
    """Changes of several series at the same time, and what differed then."""

    since: float
    """Time of the first night after it; of a drift, of the night that showed it."""
    changes: tuple[Change, ...]
    shared: tuple[str, ...]
    """What only the series that moved have in common: ``node n3``, ``check xccl``."""
    differences: tuple[Difference, ...]
    """Of provenance, the most likely first; also what did not change. None of a drift."""

    @property
    def drift(self) -> bool:
        """Whether it is of drifts: they and steps are different events."""
        return all(change.weekly is not None for change in self.changes)

    @property
    def worse(self) -> bool:
        """Whether at least one series became worse."""
        return any(change.worse for change in self.changes)
