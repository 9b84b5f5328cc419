# SPDX-License-Identifier: MIT
"""What has changed in the history, in words: since when, by how much, and what changed with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from busbar.check.names import short_name
from busbar.report.rows import MEMORY
from busbar.report.scale import number
from busbar.report.trend import dated, day, percent
from busbar.slurm.hostlist import natural
from busbar.words import names_text

if TYPE_CHECKING:
    from busbar.history.model import Change, Event, HistoryKey

_RECENT = 7 * 86400.0
_MOST_DIFFERENCES = 3
_MOST_SERIES = 5
_ENDS = re.compile(r"\b(?P<source>[DH]) (?P<target>[DH])\b")


@dataclass(frozen=True)
class News:
    """One event of the history."""

    when: str
    """``since 2026-05-01``."""
    drift: bool
    recent: bool
    """Whether it happened in the last week."""
    title: str
    worse: bool
    shared: str
    """What the series that moved have in common."""
    likely: tuple[str, ...]
    """What else differed, the most likely first, with the reason."""
    suspect: str
    """Only the first one."""
    series: tuple[str, ...]
    more: int
    """Series that are not listed."""
    below_band: bool
    open: bool
    """Whether a series that became worse has not become better since."""


def news(events: Iterable[Event], last: float | None = None) -> Iterator[News]:
    """Yield the events, the last one first; of one night, what became worse first.

    ``last`` is the time of the last night.
    """
    repaired: set[HistoryKey] = set()
    for event in sorted(events, key=lambda event: (-event.since, not event.worse)):
        if not event.changes:
            continue
        changes = sorted(event.changes, key=lambda change: (not change.worse, change.ratio.value))
        largest = max(event.changes, key=lambda change: abs(change.ratio.value - 1))
        count = len(changes)
        nodes = sorted({change.key.node for change in changes} - {""}, key=natural)
        places = [each for each in event.shared if each.startswith("node ")]
        if nodes and not places:
            text = f"{len(nodes)} nodes ({names_text(nodes)})" if nodes[1:] else f"node {nodes[0]}"
            places = [text]
        differ = [each for each in event.differences if each.changed]
        likely = [": ".join(filter(None, (each.text, each.reason))) for each in differ]
        yield News(
            when=f"{'by a drift, seen' if event.drift else 'since'} {day(event.since)}",
            drift=event.drift,
            recent=last is None or last - event.since <= _RECENT,
            title=f"{', '.join(places)}: " * bool(places)
            + _plainly(largest)
            + (f" in {count} series" if count > max(1, len(nodes)) else ""),
            worse=event.worse,
            shared=", ".join(map(short_name, event.shared)),
            likely=tuple(likely[:_MOST_DIFFERENCES]),
            suspect=differ[0].text if differ else "",
            series=tuple(_line(change) for change in changes[:_MOST_SERIES]),
            more=max(0, count - _MOST_SERIES),
            below_band=any(change.below_band for change in changes),
            open=any(change.worse and change.key not in repaired for change in changes),
        )
        repaired |= {change.key for change in changes if not change.worse}


def _plainly(change: Change) -> str:
    share = change.ratio.value - 1
    words = ("shorter", "longer") if change.key.unit == "us" else ("lower", "higher")
    metric = _ENDS.sub(
        lambda ends: f"{MEMORY[ends['source']]} to {MEMORY[ends['target']]}", change.key.metric
    )
    return f"{metric} {abs(share):.1%} {words[share > 0]}"


def _line(change: Change) -> str:
    key, unit = change.key, change.key.unit
    place = " ".join(filter(None, (key.node, short_name(key.check), key.metric)))
    levels = f"{number(change.before)} to {number(change.after)} {unit}"
    return f"{place}: {levels}, {percent(change) if change.until is None else dated(change)}"
