# SPDX-License-Identifier: MIT
"""Steps of a series, and events: which series changed at once, and what differed then.

A step is found as the nights come: each night knows only those before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from busbar.history.drift import drifts_of
from busbar.history.model import Change, Difference, Event, HistoryKey, NightSeries, ratio_of
from busbar.history.read import DAY_S
from busbar.history.statistic import BASELINE, SERIES, UNKNOWN, Array, Noise, common_noise, scan
from busbar.parse.tables import beside
from busbar.robust import DEVIATION
from busbar.words import grouped

_RETURN = 5
"""Nights at the former level that make a return to it."""
_AROUND = 3
"""Nights before the window in which the step may have been."""
_MOST = 200
"""Steps of one series."""


_Scored = Callable[[Array, NDArray[np.int64]], Array]


@dataclass(frozen=True)
class _Step:
    start: int
    """The first night at the new level."""
    found: int
    score: float
    old: NDArray[np.int64]
    """The nights at the old level."""


def changes_of(series: NightSeries, count: int = SERIES, noise: Noise = UNKNOWN) -> list[Change]:
    """Return the changes of a series, the oldest first; ``count`` is how many series there are."""
    steps = _steps(series.values, series.days, lambda v, d: scan(v, d, count, noise).score)
    ends = [*(step.start for step in steps), len(series.values)][1:]
    return [_change(series, step, end) for step, end in zip(steps, ends, strict=True)]


def _steps(values: Array, days: NDArray[np.int64], scored: _Scored) -> list[_Step]:
    found: list[_Step] = []
    level = np.arange(len(values))
    first = 0
    while len(found) < _MOST:
        scores = scored(values[level], days[level])
        alarms = np.flatnonzero(np.abs(scores) >= 1)
        alarms = alarms[alarms >= first]
        if not len(alarms):
            break
        at = int(alarms[0])
        start = _start(values[level], at, first)
        found.append(_Step(int(level[start]), int(level[at]), float(scores[at]), level[:start]))
        old, new = level[:start], level[start:]
        back = _return(values, old, new, at - start)
        if back is not None and back + _RETURN <= _next(scored(values[new], days[new])):
            night = int(new[back])
            found.append(_Step(night, int(new[back + _RETURN - 1]), 1.0, new[:back]))
            level = np.concatenate([old, new[back:]])
            first = len(old) + _RETURN
        else:
            level, first = new, 0
    return found


def _next(scores: Array) -> int:
    """Return the number of nights of a new level before the next alarm."""
    alarms = np.flatnonzero(np.abs(scores) >= 1)
    return int(alarms[0]) + 1 if len(alarms) else len(scores)


def _start(values: Array, at: int, earliest: int) -> int:
    """Return the night that best divides the old level from the new one, before an alarm.

    The sum of the absolute distances from both medians is least there.
    """
    low = max(earliest, at - 14 - _AROUND, 1)
    before = np.median(values[max(0, low - BASELINE) : low])
    after = np.median(values[at - _AROUND : at + 1])
    to_old = np.abs(values[low : at + 1] - before)
    to_new = np.abs(values[low : at + 1] - after)
    costs = np.concatenate([[0.0], np.cumsum(to_old)])[:-1] + np.cumsum(to_new[::-1])[::-1]
    return min(low + int(costs.argmin()), at - 1)


def _return(
    values: Array, old: NDArray[np.int64], new: NDArray[np.int64], after: int
) -> int | None:
    """Return the first of the nights at the former level again, as a place in ``new``."""
    before = float(np.median(values[old[-BASELINE:]]))
    now = float(np.median(values[new[: after + 1]]))
    spread = float(np.median(np.abs(values[old[-BASELINE:]] - before))) * DEVIATION
    back = np.abs(values[new] - before) < np.abs(values[new] - now)
    back &= np.abs(values[new] - before) < max(4 * spread, abs(now - before) / 2)
    back[: after + 1] = False
    runs = np.convolve(back, np.ones(_RETURN), "valid") if len(back) >= _RETURN else np.empty(0)
    whole = np.flatnonzero(runs == _RETURN)
    return int(whole[0]) if len(whole) else None


def _change(series: NightSeries, step: _Step, end: int) -> Change:
    old = series.values[step.old[-BASELINE:]]
    new = series.values[step.start : max(end, step.start + 1)]
    before, after = float(np.median(old)), float(np.median(new))
    return Change(
        key=series.key,
        since=float(series.times[step.start]),
        last_before=float(series.times[max(step.start - 1, 0)]),
        found=float(series.times[step.found]),
        before=before,
        after=after,
        ratio=ratio_of(old, new),
        score=abs(step.score),
        worse=(after > before) == series.key.less_is_better,
        bounds=series.bounds,
    )


_KINDS: Mapping[str, float] = beside(__file__)
_NIGHTS = 60
"""How far before and after the event a fact is followed."""
_NIGHT_S = 86400
_LATE = 5
"""Nights between a fact and an event after which it does not account for it."""
_MOST_SERIES = 40
"""So many series that moved, and that did not, are looked at."""


@dataclass(frozen=True)
class _Fact:
    """A fact of one series around the time of an event."""

    before: str | None
    after: str | None
    distance: int
    """Nights between its nearest change and the event."""
    changes: int


_Facts = dict[str, _Fact]


def differences(
    changes: Sequence[Change],
    since: float,
    series: Sequence[NightSeries],
    provenance: Mapping[int, Mapping[str, str]],
) -> tuple[Difference, ...]:
    """Return the facts of an event, the most likely first; those that did not change come last."""
    keys = {change.key for change in changes}
    with_facts = [each for each in series if each.provenance.any()]
    moved = [_facts(each, since, provenance) for each in _some(with_facts, keys, inside=True)]
    others = [_facts(each, since, provenance) for each in _some(with_facts, keys, inside=False)]
    names = sorted({name for facts in moved for name in facts})
    found = [_difference(name, moved, others) for name in names]
    return tuple(sorted(found, key=lambda each: (-each.weight, not each.changed, each.name)))


def _some(
    series: Sequence[NightSeries], keys: set[HistoryKey], *, inside: bool
) -> list[NightSeries]:
    chosen = [each for each in series if (each.key in keys) == inside]
    return chosen[:: max(1, len(chosen) // _MOST_SERIES)]


def _facts(
    series: NightSeries, since: float, provenance: Mapping[int, Mapping[str, str]]
) -> _Facts:
    split = int(np.searchsorted(series.times, since - _NIGHT_S / 2))
    low = max(0, split - _NIGHTS)
    numbers = series.provenance[low : split + _NIGHTS]
    edges = {split - low, *np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()}
    known = grouped(
        (name, (night + low, value))
        for night in sorted(edges)
        if night < len(numbers)
        for name, value in provenance.get(int(numbers[night]), {}).items()
    )
    return {name: _fact(values, split) for name, values in known.items()}


def _fact(values: Sequence[tuple[int, str]], split: int) -> _Fact:
    """Return a fact by its values and nights; ``split`` is the first night after the event."""
    moves = [(night, old, new) for (_, old), (night, new) in pairwise(values) if old != new]
    if moves:
        night, old, new = min(moves, key=lambda move: abs(move[0] - split))
        if abs(night - split) <= _LATE:
            return _Fact(old, new, abs(night - split), len(moves))
    before = [value for night, value in values if night < split]
    after = [value for night, value in values if night >= split]
    return _Fact(before[-1] if before else None, after[0] if after else None, _NIGHTS, len(moves))


def _difference(name: str, moved: Sequence[_Facts], others: Sequence[_Facts]) -> Difference:
    here = [facts[name] for facts in moved if name in facts]
    changed = [fact for fact in here if _changed(fact)]
    if not changed:
        fact = here[0]
        return Difference(name, fact.before, fact.after, 0.0)
    values = [(fact.before, fact.after) for fact in changed]
    before, after = max(set(values), key=values.count)
    elsewhere = [facts[name] for facts in others if name in facts and _changed(facts[name])]
    share = len(changed) / len(moved)
    # One series more that did not move, so that a single one proves nothing.
    where = (len(changed) + 1) / (len(changed) + len(elsewhere) + 1)
    when = fmean(max(0.0, 1 - fact.distance / (_LATE + 1)) for fact in changed)
    rarely = 1 / fmean(fact.changes for fact in changed)
    kind = next(weight for pattern, weight in _KINDS.items() if re.search(pattern, name))
    reason = f"changed in {_of(len(changed), len(moved))} series that moved"
    if others:
        also = "but also in " if elsewhere else "and in "
        reason += f", {also}{_of(len(elsewhere), len(others))} that did not"
    if (often := round(fmean(fact.changes for fact in changed))) > 1:
        reason += f"; it changes often, {often} times within {_NIGHTS} nights"
    return Difference(name, before, after, round(share * where * when * rarely * kind, 4), reason)


def _of(count: int, total: int) -> str:
    if count == total:
        return f"all {total}" if total > 1 else "the one"
    return f"{count or 'none'} of {total}"


def _changed(fact: _Fact) -> bool:
    return fact.distance <= _LATE


_TOGETHER_S = 1.5 * DAY_S
"""Changes of one event begin no further apart: the night of a change can be off by one."""
_DRIFT_TOGETHER_S = 28.5 * DAY_S
"""Lines are laid once a week, and noise shows a drift some weeks earlier or later."""
_SHARE = 0.8
"""Of all series of a node, a check..., so many must have moved for it to be what they share."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What changed, since when, and what differed then."""

    schema: Literal["busbar-changes/1"] = "busbar-changes/1"
    """The schema of this document."""
    series: int
    """Series that were looked at."""
    nights: int
    """Nights of the longest of them."""
    events: tuple[Event, ...]
    """The latest first."""

    @classmethod
    def of(cls, events: Sequence[Event], series: Sequence[NightSeries]) -> Changes:
        """Return the document of the events of some series."""
        nights = max((len(each.times) for each in series), default=0)
        return cls(series=len(series), nights=nights, events=tuple(events))


def find_events(
    series: Sequence[NightSeries],
    provenance: Mapping[int, Mapping[str, str]],
    since: float | None = None,
) -> list[Event]:
    """Return the events of the series that are dated after ``since``, the latest first."""
    found = []
    for group in grouped((each.key.site, each) for each in series).values():
        noise = common_noise([each.values for each in group], [each.days for each in group])
        steps = [c for each in group for c in changes_of(each, len(series), noise)]
        drifts = _drifts(group, steps, len(series), noise)
        steps = [step for step in steps if not _inside(step, drifts)]
        for changes, seconds in ((steps, _TOGETHER_S), (drifts, _DRIFT_TOGETHER_S)):
            recent = [change for change in changes if since is None or change.dated >= since]
            for together in _together(recent, seconds):
                # A series by itself can be off by a night.
                dated = sorted(change.dated for change in together)[len(together) // 2]
                # What differed on the night that showed a drift has not caused it.
                causes = (
                    () if changes is drifts else differences(together, dated, group, provenance)
                )
                found.append(
                    Event(
                        since=dated,
                        changes=tuple(sorted(together, key=lambda change: -change.score)),
                        shared=tuple(_shared(together, group)),
                        differences=causes,
                    )
                )
    return sorted(found, key=lambda event: -event.since)


def _drifts(
    series: Sequence[NightSeries], steps: Sequence[Change], count: int, noise: Noise
) -> list[Change]:
    """Return the drifts of a site's series, grouped by kind of reading."""
    kinds = grouped((replace(each.key, node=""), each) for each in series)
    return [c for fellows in kinds.values() for c in drifts_of(fellows, steps, count, noise)]


def _inside(step: Change, drifts: Sequence[Change]) -> bool:
    """Return whether a step is a part of a drift, which was nearer to its nights."""
    return any(
        each.key == step.key and each.until is not None and each.since <= step.since <= each.until
        for each in drifts
    )


def _together(changes: Sequence[Change], seconds: float) -> Iterator[list[Change]]:
    """Yield groups of changes; each change follows soon after the first of its group."""
    group: list[Change] = []
    for change in sorted(changes, key=lambda change: (change.dated, change.key)):
        if group and change.dated - group[0].dated > seconds:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _shared(changes: Sequence[Change], series: Sequence[NightSeries]) -> Iterator[str]:
    """Yield what all series that moved have in common, and hardly any that did not."""
    last = max(change.dated for change in changes)
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


_PART = re.compile(r"\d+ (?:B|[KMGT]iB)\b|in place|out of place|\b[DHM] [DHM]\b|\S+")
"""A part of a metric: ``all_reduce``, ``16 MiB``."""


def _names(key: HistoryKey) -> Iterator[str]:
    """Yield what a series has in common with others: its nodes, its check, words of its metric."""
    yield from (f"node {node}" for node in key.node.split(",") if node)
    for what in ("partition", "check", "lane", "delivery"):
        if value := getattr(key, what):
            yield f"{what} {value}"
    yield from (f"metric {part}" for part in _PART.findall(key.metric))
