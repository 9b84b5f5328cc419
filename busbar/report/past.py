# SPDX-License-Identifier: MIT
"""What the history says beside a run: the pictures of its series, and what has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from busbar.check.names import without_place
from busbar.data import history_directory
from busbar.history import reframe, store
from busbar.history.events import find_events
from busbar.history.read import history, read_series
from busbar.report.news import News, news
from busbar.report.trend import Trend, by_check, trend


@dataclass(frozen=True)
class Past:
    """The history of one site."""

    trends: Mapping[str, Sequence[Trend]] = field(default_factory=dict)
    """By check, as ReFrame shows it without the nodes."""
    news: tuple[News, ...] = ()
    last: float | None = None
    """Time of the last night, in seconds since 1970; None without a night."""


def past(site: str, since: float | None) -> Past:
    """Return the history of a site without events and nights before ``since``."""
    where = history_directory()
    if not any((where / name).exists() for name in (store.FILE, reframe.FILE)):
        return Past()  # reading would make an empty store
    with history() as stored:
        series = read_series(stored, site)
        facts = stored.provenance()
    events = find_events(series, facts, since)
    drawn = ((without_place(each.key.check), trend(each, events, facts, since)) for each in series)
    last = max((float(each.times[-1]) for each in series), default=None)
    return Past(
        by_check((check, one) for check, one in drawn if one), tuple(news(events, last)), last
    )
