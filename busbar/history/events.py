# SPDX-License-Identifier: MIT
"""Events: the series that changed at the same time, what they share, and what differed then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from busbar.history.differences import differences
from busbar.history.model import Change, Event, Key, Series
from busbar.history.read import DAY_S
from busbar.history.statistic import common_noise
from busbar.history.steps import changes_of

_TOGETHER_S = 1.5 * DAY_S
"""Changes of one event begin no further apart: the night of a change can be off by one."""
_SHARE = 0.8
"""Of all series of a node, a check..., so many must have moved for it to be what they share."""


def find_events(
    series: Sequence[Series],
    provenance: Mapping[int, Mapping[str, str]],
    since: float | None = None,
) -> list[Event]:
    """Return the events of the series that began after ``since``, the latest first."""
    by_site: dict[str, list[Series]] = {}
    for each in series:
        by_site.setdefault(each.key.site, []).append(each)
    found = []
    for group in by_site.values():
        noise = common_noise([each.values for each in group], [each.days for each in group])
        changes = [c for each in group for c in changes_of(each, len(series), noise)]
        recent = [change for change in changes if since is None or change.since >= since]
        for together in _together(recent):
            # A series by itself can be off by a night.
            began = sorted(change.since for change in together)[len(together) // 2]
            found.append(
                Event(
                    since=began,
                    changes=tuple(sorted(together, key=lambda change: -change.score)),
                    shared=tuple(_shared(together, group)),
                    differences=differences(together, began, group, provenance),
                )
            )
    return sorted(found, key=lambda event: -event.since)


def _together(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield groups of changes, each of which begins soon after the first of its group."""
    group: list[Change] = []
    for change in sorted(changes, key=lambda change: (change.since, change.key)):
        if group and change.since - group[0].since > _TOGETHER_S:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _shared(changes: Sequence[Change], series: Sequence[Series]) -> Iterator[str]:
    """Yield what all series that moved have in common, and hardly any that did not."""
    last = max(change.since for change in changes)
    moved = {change.key for change in changes}
    at_that_time = [each.key for each in series if each.times[0] < last <= each.times[-1]]
    everywhere = Counter(name for key in {*at_that_time, *moved} for name in set(_names(key)))
    among = Counter(name for key in moved for name in set(_names(key)))
    total = len({*at_that_time, *moved})
    if total == len(moved) and total > 1:
        yield f"all {total} series of the site"
        return
    for name, count in sorted(among.items()):
        if count == len(moved) and everywhere[name] < total and count >= _SHARE * everywhere[name]:
            yield name


def _names(key: Key) -> Iterator[str]:
    """Yield what a series has in common with others: its nodes, its check, words of its metric."""
    for node in key.node.split(","):
        if node:
            yield f"node {node}"
    for what, value in (
        ("partition", key.partition),
        ("check", key.check),
        ("lane", key.lane),
        ("delivery", key.delivery),
    ):
        if value:
            yield f"{what} {value}"
    for word in key.metric.split():
        yield f"metric {word}"
