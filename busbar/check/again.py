# SPDX-License-Identifier: MIT
"""Readings below their band are measured again: slow links stay slow, other things pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from busbar.check.results import Outcome, Result, sentence
from busbar.verdict import Verdict

_NOTE = "not-repeated"


def doubtful(outcome: Outcome) -> bool:
    """Whether nothing but readings that are worse than their band speaks against it.

    Wrong data, a missing reading, a way that the data did not take: these are no matter of chance.
    """
    wrong = [result for result in outcome.results if result.verdict is not Verdict.PASS]
    return bool(wrong) and all(
        result.verdict is Verdict.DEGRADED and result.value is not None and result.low is not None
        for result in wrong
    )


def confirmed(first: Outcome, second: Outcome) -> Outcome:
    """The second outcome; but a reading is degraded only if it was in both, and else a note.

    ``first`` is doubtful. A second that is worse than degraded stands as it is, and the first
    where the second has not all readings in question.
    """
    if not (doubtful(second) or second.verdict is Verdict.PASS):
        return second
    before, after = _keyed(first.results), _keyed(second.results)
    slow = {key for key, result in before.items() if result.verdict is not Verdict.PASS}
    if not slow <= set(after):
        return first
    results, once = [], []
    for key, now in after.items():
        was = before.get(key, now)
        worse, better = (was, now) if now.verdict is Verdict.PASS else (now, was)
        results.append(better)
        if better.verdict is Verdict.PASS and worse.verdict is not Verdict.PASS:
            once.append(sentence(worse))
    still = any(result.verdict is not Verdict.PASS for result in results)
    earlier = [note for note in first.notes if note["id"] == _NOTE]
    note = {
        "id": _NOTE,
        "summary": f"worse than its band, but not in each run: {'; '.join(once)}",
        "evidence": [],
    }
    return replace(
        second,
        results=tuple(results),
        causes=(second.causes or first.causes) if still else (),
        notes=(*second.notes, *earlier, *([note] if once else [])),
    )


def _keyed(results: Iterable[Result]) -> dict[tuple[object, ...], Result]:
    """What each reading is of; where a tool repeats one, also which of them it is."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[object, ...], Result] = {}
    for each in results:
        key = (each.where, each.pair, each.metric, each.buffers, each.bytes)
        found[*key, seen[key]] = each
        seen[key] += 1
    return found
