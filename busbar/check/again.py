# SPDX-License-Identifier: MIT
"""Readings below their band are measured again: slow links stay slow, other things pass."""

from __future__ import annotations

from dataclasses import replace

from busbar.check.results import Outcome, Result, sentence
from busbar.verdict import Verdict


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
    before = {_key(result): result for result in first.results}
    slow = {key for key, result in before.items() if result.verdict is not Verdict.PASS}
    if not slow <= {_key(result) for result in second.results}:
        return first
    results, once = [], []
    for now in second.results:
        was = before.get(_key(now), now)
        worse, better = (was, now) if now.verdict is Verdict.PASS else (now, was)
        results.append(better)
        if better.verdict is Verdict.PASS and worse.verdict is not Verdict.PASS:
            once.append(sentence(worse))
    still = any(result.verdict is not Verdict.PASS for result in results)
    note = {
        "id": "not-repeated",
        "summary": f"of two runs one alone read worse than its band: {'; '.join(once)}",
        "evidence": [],
    }
    return replace(
        second,
        results=tuple(results),
        causes=(second.causes or first.causes) if still else (),
        notes=(*second.notes, note) if once else second.notes,
    )


def _key(result: Result) -> tuple[object, ...]:
    return (result.where, result.pair, result.metric, result.buffers, result.bytes)
