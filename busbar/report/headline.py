# SPDX-License-Identifier: MIT
"""The first sentence about a run: which part, by how much, why, and what to do next."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from busbar.check.causes import UNEXPLAINED
from busbar.check.snapshot import Snapshot
from busbar.cluster.nodes.record import NodeRecord
from busbar.cluster.sweep.accusation import accused_text
from busbar.engine.results import Outcome, Result
from busbar.engine.verdicts import shortfall
from busbar.parse.tables import beside
from busbar.report.failures import Failure
from busbar.report.fleet import Fleet
from busbar.report.news import News
from busbar.report.rows import Namer, collective_of, common_part, deciding
from busbar.verdict import Verdict
from busbar.words import counted, names_text

_LONGEST_REASON = 160
_FAST = "nothing is slower than expected"
_OF_NODES: Mapping[str, str] = beside(__file__)


@dataclass(frozen=True)
class Headline:
    """What a reader learns first."""

    text: str
    """Which part, by how much, why; or that nothing is wrong."""
    next: str = ""
    """What to do, if something is wrong."""

    def __str__(self) -> str:
        """Return both as one text."""
        return f"{self.text.rstrip('.')}. Next: {self.next}" if self.next else self.text


def headline(
    run: Snapshot,
    name: Namer,
    failures: Sequence[Failure],
    *,
    news: Sequence[News] = (),
    sweep: Fleet | None = None,
    series: int = 0,
    records: Sequence[NodeRecord] = (),
) -> Headline:
    """Return the sentence about failures, else about the sweep, else about records and history.

    ``failures`` has the worst first; ``series`` counts the series in the history; ``records`` are
    the records of nodes that are not healthy.
    """
    changes = "; ".join(filter(None, (_of_records(records), of_news(news))))
    if failures:
        found = _of_failures(run, name, failures)
    elif run.outcomes:
        found = Headline(_of_passes(run.outcomes))
    elif sweep:
        found = Headline(of_sweep(sweep))
    # A run without a reading is failed, whatever earlier nights have measured.
    elif not series or run.verdict is Verdict.FAILED:
        return Headline("nothing was measured")
    else:
        return Headline(changes or f"nothing became worse in {series} series")
    if not changes:
        return found
    if found.text.startswith(_FAST):
        found = Headline("no reading is below its band")
    first = (found.text, changes) if failures or sweep else (changes, found.text)
    return Headline("; ".join(first), found.next)


def of_news(news: Sequence[News]) -> str:
    """Return what became worse last and is not repaired; empty if nothing is."""
    worse = [each for each in news if each.worse and each.open]
    if not worse:
        return ""
    more = f", and {counted(len(worse) - 1, 'change')} more for the worse" if worse[1:] else ""
    suspect = f" (with {worse[0].suspect})" if worse[0].suspect else ""
    return f"{worse[0].title} {worse[0].when}{suspect}{more}"


def _of_failures(run: Snapshot, name: Namer, failures: Sequence[Failure]) -> Headline:
    """Return the sentence of the worst failure."""
    worst = failures[0]
    outcome = max(
        (each for each in run.outcomes if name(each) in worst.checks),
        key=lambda each: each.verdict.severity,
    )
    why = textwrap.shorten(worst.shown_summaries[0], _LONGEST_REASON, placeholder=" ...")
    row = deciding(outcome)
    where = f"{row.where}: " if row and row.where else ""
    if text := of_reading(row, outcome, name(outcome)):
        text += f": {why}" if worst.id not in ("", UNEXPLAINED) else ""
    else:
        text = f"{where}{name(outcome)}: {why}"
    others = Counter(
        each.verdict for each in run.outcomes if each.verdict.is_problem and each is not outcome
    )
    rest = (f"{counted(others[v], 'other check')} {v}" for v in sorted(others, reverse=True))
    return Headline(", ".join([text, *rest]), worst.remedy or worst.repeat)


def of_reading(row: Result | None, outcome: Outcome, check: str) -> str:
    """Return by how much a reading misses its band or limit; empty if that is not the fault."""
    if not row or not row.value or outcome.verdict not in (Verdict.DEGRADED, Verdict.IMPOSSIBLE):
        return ""
    what = f"{row.where}: " * bool(row.where) + (
        common_part(row, outcome.results) or collective_of(row) or check
    )
    edge = row.high if row.metric == "latency" else row.low
    limit = row.shown_limit if row.verdict is Verdict.IMPOSSIBLE else None
    missed = shortfall(row.value or 0, row.unit, row.bytes or 0, edge=edge, limit=limit)
    return f"{what} {missed}"


def _of_records(records: Sequence[NodeRecord]) -> str:
    """Return the nodes that earlier looks found unhealthy, with the evidence against the first."""
    if not records:
        return ""
    first = min(records, key=lambda each: each.state != "faulty")
    nodes = [each.node for each in records if each.state == first.state]
    text = f"{names_text(nodes)} {'is' if len(nodes) == 1 else 'are'} {first.state}"
    return text + (f": {first.evidence[0].text}" if first.evidence else "")


def _of_passes(outcomes: Sequence[Outcome]) -> str:
    passed = sum(outcome.verdict is Verdict.PASS for outcome in outcomes)
    left = len(outcomes) - passed
    if not passed:
        return f"{counted(left, 'check')} measured, but there is no reference to compare with"
    text = f"{_FAST} in {counted(passed, 'check')}"
    return f"{text}; {left} more had no reference" if left else text


def of_sweep(fleet: Fleet) -> str:
    """Return the sentence of a sweep, with the nodes of each verdict."""
    bad = [(count, verdict) for verdict, count in fleet.counts if verdict.is_problem]
    if not fleet.total:
        return "no node was measured"
    if any(verdict is Verdict.UNJUDGED for verdict, _ in fleet.counts) and not bad:
        return f"{fleet.total} nodes were only compared with each other"
    if not bad:
        return f"no node of {fleet.total} is slow"
    parts: list[str] = []
    for count, verdict in bad:
        names = [node.name for node in fleet.listed if node.verdict is verdict]
        text = _OF_NODES.get(verdict, f"{{}} is {verdict}")
        if len(names) > 1:
            text = text.replace(" is ", " are ").replace(" was ", " were ")
        text = text.format(names_text(names))
        if verdict is Verdict.DEGRADED and fleet.accused:
            text = accused_text(fleet.accused)
        parts.append(text if count == 1 else f"{text} ({count} nodes)")
    return f"{'; '.join(parts)}; {fleet.total} nodes in all"
