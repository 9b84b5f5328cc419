# SPDX-License-Identifier: MIT
"""The documents of `busbar history --json`."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


class SeriesKeyRow(TypedDict):
    """What the readings of a series have in common."""

    site: str
    """Name of the site."""
    partition: str
    """Partition of the site."""
    node: str
    """The node, or several with commas."""
    check: str
    """The check, or the benchmark of an output."""
    metric: str
    """What was measured, with its size."""
    unit: str
    """``GB/s``, ``us``..."""
    lane: str
    """Lane of UCX or family of MPI."""
    delivery: str
    """How the stack reached the job."""


class ChangeRow(SeriesKeyRow):
    """A step of one series, or a drift."""

    since: str
    """The first night at the new level, ISO 8601; of a drift, of the weeks that showed it."""
    last_before: str
    """The night before that."""
    until: str | None
    """Of a drift, the last night of these weeks; null for a step."""
    weekly: float | None
    """Of a drift, the share of the level that the series moves in a week beyond that of the other
    nodes; null for a step."""
    found: str
    """The night that made it certain."""
    before: float
    """Median before; of a drift, of its first two weeks."""
    after: float
    """Median after; of a drift, of its last two weeks."""
    ratio: float | None
    """After over before: the median of the ratios of all pairs of nights; null if before was 0."""
    ratio_low: float | None
    """Lower end of the 95 % interval of ``ratio``; null for fewer than 4 nights."""
    ratio_high: float | None
    """Upper end."""
    score: float
    """The statistic over its threshold."""
    worse: bool
    """Whether it is a change for the worse."""
    below_band: bool
    """Whether the new level is worse than the band of the last judged reading."""


class DifferenceRow(TypedDict):
    """A fact of provenance before and after an event."""

    name: str
    """``driver``, ``lock.libfabric``, ``env.NCCL_ALGO``..."""
    before: str | None
    """Null if it is not known."""
    after: str | None
    """Null if it is not known."""
    changed: bool
    """Whether both are known and differ."""
    weight: float
    """How well it accounts for the event, 0 to 1."""
    text: str
    """``libfabric 2.0 -> 2.2 in the lock``."""
    reason: str
    """What the weight is from."""


class EventRow(TypedDict):
    """Series that changed at the same time."""

    since: str
    """The first night after it, ISO 8601; of drifts, the night that showed them."""
    worse: bool
    """Whether a series became worse."""
    shared: list[str]
    """What the series that moved have in common, and the others do not: ``node n3``."""
    changes: list[ChangeRow]
    """The series that moved, the clearest first."""
    differences: list[DifferenceRow]
    """The most likely first; then what did not change. Empty for drifts."""


class ChangesDocument(TypedDict):
    """What changed, since when, and what differed then."""

    schema: Literal["busbar-changes/1"]
    """The schema of this document."""
    series: int
    """Series that were looked at."""
    nights: int
    """Nights of the longest of them."""
    events: list[EventRow]
    """The latest first."""


class HistorySourceRow(TypedDict):
    """A session or an imported file."""

    name: str
    """``session`` and ReFrame's id of it, or ``file`` or ``output`` and its digest."""
    label: str
    """The host of the session, or the name of the file."""
    first: str
    """Time of its first reading, ISO 8601."""
    last: str
    """Time of its last reading."""
    readings: int
    """Its readings in the history."""
    sites: list[str]
    """The sites that were measured."""


class HistoryListDocument(TypedDict):
    """The sessions and files of the history."""

    schema: Literal["busbar-history-list/1"]
    """The schema of this document."""
    sources: list[HistorySourceRow]
    """The oldest first."""


class HistorySeriesRow(SeriesKeyRow):
    """One series with its nights."""

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
    times: list[str]
    """The last reading of each night, ISO 8601."""
    values: list[float]
    """The median of each night."""
    provenance: dict[str, str]
    """Of the last night."""


class HistoryShowDocument(TypedDict):
    """Series of the history."""

    schema: Literal["busbar-history-show/1"]
    """The schema of this document."""
    series: list[HistorySeriesRow]
    """By site, partition, node, check and metric."""


class ComparedRow(SeriesKeyRow):
    """One series in two selections; what these differ in is empty."""

    a: float
    """Median of the first selection."""
    b: float
    """Median of the second."""
    readings_a: int
    """Readings of the first selection."""
    readings_b: int
    """Readings of the second."""
    ratio: float
    """``b / a``: the median of the ratios of all pairs of readings."""
    ratio_low: float | None
    """Lower end of its 95 % interval; null for fewer than 4 readings of one."""
    ratio_high: float | None
    """Upper end."""
    differs: bool
    """Whether the interval excludes 1."""


class CompareDocument(TypedDict):
    """Two selections, series by series."""

    schema: Literal["busbar-history-compare/1"]
    """The schema of this document."""
    a: str
    """The first selection."""
    b: str
    """The second."""
    series: list[ComparedRow]
    """Those that both have, the largest difference first."""


class ImportedRow(TypedDict):
    """What came of one file."""

    file: str
    """The file."""
    kind: str
    """What it is."""
    readings: int
    """Readings that the history did not have."""


class ImportDocument(TypedDict):
    """What was imported."""

    schema: Literal["busbar-history-import/1"]
    """The schema of this document."""
    files: list[ImportedRow]
    """The files."""


class BaselineDocument(TypedDict):
    """Nights for ``busbar site calibrate``."""

    schema: Literal["busbar-history-baseline/1"]
    """The schema of this document."""
    site: str
    """Name of the site."""
    files: list[str]
    """The files for ``busbar site calibrate``."""
    left_out: int
    """Nights with a reading outside of its band."""
    too_new: list[SeriesKeyRow]
    """Series that changed within these nights; they are not in the files."""


class PruneDocument(TypedDict):
    """What was removed."""

    schema: Literal["busbar-history-prune/1"]
    """The schema of this document."""
    readings: int
    """Readings that were removed."""
    bytes_before: int
    """Size of the file before."""
    bytes_after: int
    """And after."""
