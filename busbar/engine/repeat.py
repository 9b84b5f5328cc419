# SPDX-License-Identifier: MIT
"""Readings below their band are measured again: slow links stay slow, other things pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from busbar.engine.reading import Note, redacted
from busbar.engine.results import Outcome, Result, sentence
from busbar.verdict import Verdict

_NOTE = "not-repeated"


def only_below_band(outcome: Outcome) -> bool:
    """Whether its only findings are readings worse than their band.

    Wrong data, missing readings and wrong transports are not a matter of chance.
    """
    wrong = [result for result in outcome.results if result.verdict.is_problem]
    slow = (Verdict.DEGRADED, Verdict.UNKNOWN)
    return bool(wrong) and all(r.verdict in slow and None not in (r.value, r.low) for r in wrong)


def disagree(outcome: Outcome) -> bool:
    """Whether a reading was slow in one of the runs behind this outcome, and not in another."""
    return any(note.id == _NOTE for note in outcome.notes)


def confirmed(first: Outcome, second: Outcome) -> Outcome:
    """Return the second outcome, in which only readings that were slow in both runs are bad.

    So only a reading that is slow in every run condemns, with the worse verdict: a node that was
    busy once does not excuse the other run. ``first`` is only below its band; of more than two
    runs it is what this function made of the earlier ones. A reading that was slow in one run
    gets the row of the other, and a note keeps it. A second outcome that lacks one of the slow
    readings clears nothing.
    """
    before, after = _keyed(first.results), _keyed(second.results)
    slow = {key for key, row in before.items() if row.verdict.is_problem}
    if not second.verdict.is_problem and not slow <= after.keys():
        return first
    if only_below_band(second):
        cleared = {
            key: before[key]
            for key, row in after.items()
            if row.verdict.is_problem and key in before and not before[key].verdict.is_problem
        }
    else:
        cleared = {}
    accused = {
        key: before[key]
        for key in slow & after.keys()
        if after[key].verdict.is_problem
        and before[key].verdict.severity > after[key].verdict.severity
    }
    once = [before[key] for key in slow if key in after and not after[key].verdict.is_problem]
    once += [after[key] for key in cleared]
    results = tuple((after | cleared | accused).values())
    notes = [*second.notes, *(note for note in first.notes if note.id == _NOTE)]
    if once:
        lines = "; ".join(map(sentence, once))
        summary = f"worse than its band in only one of two runs: {lines}"
        notes.append(redacted(Note(_NOTE, summary)))
    causes = (*first.causes, *second.causes) if accused else second.causes
    outcome = replace(second, results=results, notes=tuple(notes), causes=causes)
    return outcome if outcome.verdict.is_problem else replace(outcome, causes=())


def unconfirmed(outcome: Outcome) -> Outcome:
    """Return an outcome that is only below its band, and could not be repeated, as unknown."""
    results = tuple(
        replace(each, verdict=Verdict.UNKNOWN) if each.verdict is Verdict.DEGRADED else each
        for each in outcome.results
    )
    note = Note(_NOTE, "worse than its band, but not repeated: the run was interrupted")
    return replace(outcome, results=results, notes=(*outcome.notes, note), causes=())


def _keyed(results: Iterable[Result]) -> dict[tuple[object, ...], Result]:
    """Return the results by what they measure, and by their order if a tool repeats one."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[tuple[object, ...], Result] = {}
    for each in results:
        key = (each.where, each.pair, each.metric, each.buffers, each.bytes)
        found[*key, seen[key]] = each
        seen[key] += 1
    return found
