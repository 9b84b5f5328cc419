# SPDX-License-Identifier: MIT
"""Readings below their band are measured again: slow links stay slow, other things pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from busbar.judge.results import Outcome, Result, sentence
from busbar.output.note import Note
from busbar.verdict import Verdict

_NOTE = "not-repeated"


def only_below_band(outcome: Outcome) -> bool:
    """Whether nothing but readings that are worse than their band speaks against it.

    Wrong data, a missing reading, a way that the data did not take: these are no matter of chance.
    """
    wrong = [result for result in outcome.results if result.verdict.is_problem]
    return bool(wrong) and all(
        result.verdict is Verdict.DEGRADED and result.value is not None and result.low is not None
        for result in wrong
    )


def confirmed(first: Outcome, second: Outcome) -> Outcome:
    """The second outcome, with a note of what was worse than its band in the first alone.

    ``first`` is only below its band. A second outcome that lacks one of its slow readings clears
    nothing, and slow readings of other pairs do not clear the first: a fault may move.
    """
    before, after = _keyed(first.results), _keyed(second.results)
    slow = {key: row for key, row in before.items() if row.verdict.is_problem}
    if not second.verdict.is_problem and not slow.keys() <= after.keys():
        return first
    once = [
        sentence(row)
        for key, row in slow.items()
        if key in after and not after[key].verdict.is_problem
    ]
    earlier = [note for note in first.notes if note["id"] == _NOTE]
    summary = f"worse than its band, and not when measured again: {'; '.join(once)}"
    note = Note(_NOTE, summary).to_json()
    return replace(second, notes=(*second.notes, *earlier, *([note] if once else [])))


def _keyed(results: Iterable[Result]) -> dict[tuple[object, ...], Result]:
    """What each reading is of; where a tool repeats one, also which of them it is."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[object, ...], Result] = {}
    for each in results:
        key = (each.where, each.pair, each.metric, each.buffers, each.bytes)
        found[*key, seen[key]] = each
        seen[key] += 1
    return found
