# SPDX-License-Identifier: MIT
"""Judge the readings of a run by the figures of a clause."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from busbar.certify.contract import Clause, Figure
from busbar.check.snapshot import Snapshot
from busbar.engine.results import Result
from busbar.expect import COLLECTIVES
from busbar.report.rows import in_words
from busbar.robust import quality
from busbar.verdict import Verdict

State = Literal["met", "not met", "not measured"]
_NOT_MEASURED = (Verdict.UNJUDGED, Verdict.NOT_RUN, Verdict.UNKNOWN)
_BY_FIGURES = (Verdict.PASS, Verdict.UNJUDGED, Verdict.DEGRADED)
"""Verdicts on valid readings, which the figures of a clause can override."""

_COLLECTIVES = frozenset(COLLECTIVES)


@dataclass(frozen=True, kw_only=True)
class ClauseResult:
    """The result of one clause; its figures come from its worst reading."""

    clause: str
    """The clause in the usual terms."""
    state: State
    """``met``, ``not met`` or ``not measured``."""
    why: str = ""
    """One sentence; empty for a clause that is met."""
    where: str = ""
    """The node or nodes of the worst reading."""
    measured: float | None = None
    """The worst reading."""
    promised: float | None = None
    """The required value."""
    limit: float | None = None
    """The limit of its links."""
    unit: str = ""
    """``GB/s`` or ``us``."""
    least: float | None = None
    """The smallest of the comparable readings."""
    most: float | None = None
    """The largest."""
    readings: int = 0
    """Number of these readings."""
    nodes: int = 0
    """Number of nodes that they were measured on."""

    @property
    def quality(self) -> float:
        """The worst reading over the required value; the smallest is the worst."""
        return quality(self.measured, self.promised, latency=self.unit == "us")


def rows_of(clause: Clause, checked: Snapshot) -> Iterator[Result]:
    """Yield the readings that a clause applies to."""
    for outcome in checked.outcomes:
        if outcome.check.split(" ")[0] != clause.name.split("%")[0]:
            continue
        for row in outcome.results:
            named = _COLLECTIVES.intersection(re.findall(r"\w+", f"{row.check} {row.pair}"))
            if clause.operation and named and clause.operation not in named:
                continue
            if clause.bytes in (None, row.bytes) or row.verdict is Verdict.FAILED:
                yield row


def _figures_on(clause: Clause, row: Result) -> Sequence[str]:
    """Return the figures that a reading must reach, for rates or for latencies."""
    figures = clause.at_most if row.unit == "us" else clause.at_least
    return () if row.value is None else figures


def counted_rows(clause: Clause, rows: Sequence[Result]) -> list[Result]:
    """Return the rows that decide a clause.

    With figures: the readings that they apply to, and all failures. Without figures, a size
    without a band is ignored if another size of its pair has passed, as in the verdict of a check.
    Intact data does not count as a rate.
    """
    if clause.at_least or clause.at_most:
        right = (Verdict.PASS, Verdict.UNJUDGED)
        return [r for r in rows if r.verdict not in right or _figures_on(clause, r)]
    passed = {(r.where, r.pair) for r in rows if r.verdict is Verdict.PASS and r.value is not None}
    return [r for r in rows if r.verdict != Verdict.UNJUDGED or (r.where, r.pair) not in passed]


def judge_row(clause: Clause, row: Result) -> ClauseResult:
    """Judge one reading by the figures of the clause, or by its own verdict."""
    latency, texts = row.unit == "us", _figures_on(clause, row)
    result = ClauseResult(
        clause=clause.text,
        state="met",
        where=row.where,
        measured=row.value,
        limit=row.shown_limit,
        unit=row.unit if row.value is not None else "",
    )
    if row.value is None or not texts or row.verdict not in _BY_FIGURES:
        if row.verdict is not Verdict.UNJUDGED:
            result = replace(result, promised=row.high if latency else row.low)
        state: State = "not measured" if row.verdict in _NOT_MEASURED else "not met"
        state = "met" if row.verdict is Verdict.PASS else state
        why = row.message or f"{row.verdict}: {row.pair or row.check}"
        return replace(result, state=state, why="" if state == "met" else why)
    known = {text: Figure.parse(text).among(row) for text in texts}
    if lost := [text for text, value in known.items() if value is None]:
        return replace(result, state="not measured", why=f"its {lost[0]} is unknown")
    values = [value for value in known.values() if value is not None]
    promised = min(values) if latency else max(values)
    result = replace(result, promised=promised)
    if row.value <= promised if latency else row.value >= promised:
        return result
    sense = "above" if latency else "below"
    what = in_words(row)
    why = f"{row.where}: {what} {row.value:.4g} {row.unit}, {sense} {promised:.4g} {row.unit}"
    return replace(result, state="not met", why=f"{why}; {row.cause}" if row.cause else why)


def against_nodes(clauses: Iterable[Clause], checked: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the bad readings of one node, or all bad readings of pairs."""
    causes = {cause.check: f" ({cause.id}: {cause.remedy})" for cause in checked.causes}
    joint: list[tuple[frozenset[str], str]] = []
    for clause in clauses:
        for row in rows_of(clause, checked):
            judged = judge_row(clause, row)
            if judged.state == "not met" and row.where:
                why = f"{row.check}: {judged.why}{causes.get(row.check, '')}"
                joint.append((frozenset(row.where.split(",")), why))
    yield from ((next(iter(nodes)), why) for nodes, why in joint if len(nodes) == 1)
    pairs = [nodes for nodes, _ in joint if len(nodes) > 1]
    if len(common := frozenset.intersection(*pairs) if pairs else frozenset()) == 1:
        yield next(iter(common)), next(why for nodes, why in joint if len(nodes) > 1)
