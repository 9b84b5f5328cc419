# SPDX-License-Identifier: MIT
"""What differed in the provenance before and after an event, the most likely first.

A fact accounts for an event if it changed just then, for the series that moved, and not for the
others or at other times. Its weight is the product of four shares:

- When: 1 if it changed between the last night before and the first night after; less with each
  night between.
- Where: the share of series that moved among those for which it changed then.
- How often: one over the number of its changes; what changes every night explains nothing.
- What: libraries, drivers and firmware that move bytes before anything else (``_KINDS``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np

from busbar.history.model import Change, Difference, HistoryKey, NightSeries
from busbar.words import grouped

_KINDS = (
    (
        re.compile(r"^(?:lock_hash|image|image_digest|commit|nodes)$"),
        0.5,
    ),  # other facts say what is in them
    (
        re.compile(
            r"(?i)^link\.|fabric|uc[xc]|[nr]ccl|mpi|ofi|rdma|efa|cxi|driver|firmware|cuda|rocm"
        ),
        1.0,
    ),
    (re.compile(r"^env\.|^kernel|^lane|^delivery"), 0.9),
    (re.compile(r"^lock\."), 0.7),
    (re.compile(r""), 0.6),
)
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
    """Return a fact by its values and their nights, of which ``split`` is the first after."""
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
    # One series more that did not move, so that a single one is no proof.
    where = (len(changed) + 1) / (len(changed) + len(elsewhere) + 1)
    when = fmean(max(0.0, 1 - fact.distance / (_LATE + 1)) for fact in changed)
    rarely = 1 / fmean(fact.changes for fact in changed)
    kind = next(weight for pattern, weight in _KINDS if pattern.search(name))
    reason = f"changed for {len(changed)} of {len(moved)} series that moved"
    if others:
        reason += f" and {len(elsewhere)} of {len(others)} that did not"
    if (often := round(fmean(fact.changes for fact in changed))) > 1:
        reason += f"; it changes often, {often} times within {_NIGHTS} nights"
    return Difference(name, before, after, round(share * where * when * rarely * kind, 4), reason)


def _changed(fact: _Fact) -> bool:
    return fact.distance <= _LATE
