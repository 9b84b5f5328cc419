# SPDX-License-Identifier: MIT
"""The readings of a run in short: one line for each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busbar.engine.reading import Reading
from busbar.engine.verdicts import Judged
from busbar.explain.model import Explanation
from busbar.verdict import Verdict, worst

_UNITS = {"bw": "GB/s", "busbw": "busbw GB/s", "latency_us": "us"}


@dataclass(frozen=True)
class Row:
    """All readings of one size that measure the same."""

    nbytes: int
    what: str
    """Operation, buffers and unit."""
    measured: str
    """Out of place and in place, or the range over the pairs of ranks."""
    expected: str
    """The bound that is nearest to the readings; empty without a band."""
    wrong: int
    verdict: Verdict | None
    """The worst one, if it is a problem."""


def rows(explanation: Explanation) -> list[Row]:
    """Return the rows in the order of their first readings; none for ``algbw``."""
    judged = {id(each.reading): each for each in explanation.judged}
    groups: dict[tuple[int, str], list[Reading]] = {}
    for reading in explanation.readings:
        if reading.kind != "algbw":
            words = (reading.operation, reading.buffers, _UNITS[reading.kind])
            what = " ".join(word for word in words if word)
            groups.setdefault((reading.nbytes, what), []).append(reading)
    return [
        _row(nbytes, what, group, [judged[id(r)] for r in group if id(r) in judged])
        for (nbytes, what), group in groups.items()
    ]


def _row(nbytes: int, what: str, group: Sequence[Reading], judged: Sequence[Judged]) -> Row:
    verdict = worst(each.verdict for each in judged) if judged else Verdict.PASS
    bands = [each for each in judged if each.expectation]
    expected = ""
    if bands:
        sign = "<=" if bands[0].reading.kind == "latency_us" else ">="
        bounds = sorted(each.bound for each in bands)
        expected = f"{sign} {bounds[-1] if sign == '<=' else bounds[0]:.4g}"
    return Row(
        nbytes,
        what,
        _values(group),
        expected,
        sum(reading.wrong for reading in group),
        verdict if verdict.is_problem else None,
    )


def _values(group: Sequence[Reading]) -> str:
    values = [reading.value for reading in group]
    if [reading.in_place for reading in group] == [False, True]:
        return f"{values[0]:.4g} / {values[1]:.4g} in place"
    if len(values) == 1:
        return f"{values[0]:.4g}"
    unit = "pairs" if group[0].source is not None else "readings"
    return f"{min(values):.4g} to {max(values):.4g} ({len(values)} {unit})"
