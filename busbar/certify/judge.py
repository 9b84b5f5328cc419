# SPDX-License-Identifier: MIT
"""Judge the clauses of a contract by the runs of a record only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from busbar.certify.contract import Clause, Contract
from busbar.certify.ledger import Ledger
from busbar.certify.plan import Work, done, lacking, work_of
from busbar.certify.readings import ClauseResult, State, counted_rows, judge_row, rows_of
from busbar.engine.results import Result
from busbar.slurm.hostlist import fold
from busbar.units import format_bytes
from busbar.words import counted, grouped, names_text


@dataclass(frozen=True)
class NodeEvent:
    """The history of a node since its first test."""

    node: str
    """Its name."""
    fault: str
    """The fault for which it was excluded."""
    time: str
    """When the fault was found: ISO 8601, UTC."""
    repaired: str = ""
    """When it was returned to the tests; empty if it was not."""
    passed: bool = False
    """Whether it has had no fault since then."""


def judge(contract: Contract, ledger: Ledger) -> tuple[ClauseResult, ...]:
    """Judge each clause by the runs of a record."""
    return tuple(_Judge(ledger, clause).result() for clause in contract.clauses)


def account(ledger: Ledger) -> tuple[NodeEvent, ...]:
    """Return the history of the excluded nodes, in order of time."""
    events: list[NodeEvent] = []
    nodes = frozenset(ledger.nodes)
    still = {**ledger.set_aside, **ledger.places}
    for each in ledger.kept:
        known = {event.node for event in events if not event.repaired}
        for node, why in each.faults.items():
            if node not in known:
                events.append(NodeEvent(node, why, each.run.begun))
        if each.run.kind == "repaired":
            events = [
                replace(event, repaired=each.run.begun, passed=event.node not in still)
                if not event.repaired and (event.node in each.nodes or event.node not in nodes)
                else event
                for event in events
            ]
    return tuple(events)


def facts_of(ledger: Ledger) -> dict[str, dict[str, str]]:
    """Return the facts that the latest runs of each node report."""
    found: dict[str, dict[str, str]] = {node: {} for node in ledger.nodes}
    for checked in filter(None, (each.checked for each in ledger.kept)):
        for check, common in checked.provenance.items():
            places = checked.node_provenance.get(check, {})
            rows = {row.where for o in checked.outcomes for row in o.results}
            for place, own in (places or {where: {} for where in rows}).items():
                for node in place.split(","):
                    if node in found:
                        found[node] |= {**common, **own}
    return found


def versions(ledger: Ledger) -> dict[str, str]:
    """Return the nodes' software versions, without lock packages: common, or per node."""
    groups: dict[str, dict[str, list[str]]] = {}
    for node, facts in facts_of(ledger).items():
        for name in facts.keys() - {"nodes"}:
            if not name.startswith(("lock.", "env.OMPI_", "env.PMIX_", "env.PRTE_")):
                groups.setdefault(name, {}).setdefault(facts[name], []).append(node)
    return {
        name: next(iter(texts))
        if len(texts) == 1
        else ", ".join(f"{text} on {fold(nodes)}" for text, nodes in texts.items())
        for name, texts in sorted(groups.items())
    }


@dataclass(frozen=True)
class _Judge:
    ledger: Ledger
    clause: Clause

    @cached_property
    def work(self) -> Work | None:
        """The work that measures the clause; None if any check does."""
        return work_of(self.clause)

    def result(self) -> ClauseResult:
        clause = self.clause
        if clause.require == "same":
            return self._same()
        if clause.name:
            return self._readings()
        kinds = ("gate", "soak") if clause.require == "soak" else (clause.require,)
        bad = {n: why for n in self.ledger.nodes if (why := self.ledger.against(n, kinds))}
        if clause.require == "sweep":
            bad |= self.ledger.places
        nodes = len(self.ledger.nodes)
        if bad:
            first, why = next(iter(bad.items()))
            names = fold(sorted(bad)) if len(bad) > 1 else first
            return self._not("not met", f"{names}: {why}", where=first, nodes=nodes)
        if missing := self._missing():
            return self._not("not measured", missing, nodes=nodes)
        return ClauseResult(clause=clause.text, state="met", nodes=nodes)

    def _missing(self) -> str:
        """Why the work of the clause is incomplete; empty if it is complete."""
        if not self.work:
            return ""
        if missing := list(self.ledger.missing.values()):
            return f"not tested: {names_text(missing)}"
        aside = self.ledger.set_aside
        every = self.ledger.nodes if self.work.together <= 2 else ()
        undone = [node for node in every if not done(self.work, node, self.ledger)]
        if lost := [node for node in undone if node in aside]:
            return f"{lost[0]} had been excluded: {aside[lost[0]]}"
        if left := undone or lacking(self.work, self.ledger):
            return f"not run on {fold(left)}{self._said()}"
        kept = [each for each in self.ledger.kept if self.work.is_of(each)]
        return "" if kept else f"it was not run{self._said()}"

    def _said(self) -> str:
        for each in reversed(self.ledger.kept):
            if self.work and (each.run.kind, each.run.work) == (self.work.kind, self.work.name):
                return f": {each.run.said}" if each.run.said else ""
        return ""

    def _readings(self) -> ClauseResult:
        rows = counted_rows(self.clause, list(self._rows()))
        if not rows:
            return self._not("not measured", self._missing() or self._no_reading())
        judged = [judge_row(self.clause, row) for row in rows]
        bad = [each for each in judged if each.state == "not met"]
        unknown = [each for each in judged if each.state == "not measured"]
        named = {node for row in rows for node in row.where.split(",")}
        missing = self._missing()
        if self.work and self.work.together <= 2 and (lost := {*self.ledger.nodes} - named):
            missing = missing or f"no reading of {fold(sorted(lost))}"
        if self.clause.at_least and self.clause.at_most and len({row.unit for row in rows}) < 2:
            missing = missing or f"measured no {'rate' if rows[0].unit == 'us' else 'latency'}"
        shares = [each for each in judged if each.promised]
        ordered = sorted(bad or shares, key=lambda each: each.quality)
        first = ordered[0] if bad else (unknown or ordered or judged)[0]
        like = _kind(rows[judged.index(first)])
        values = [r.value for r in rows if r.value is not None and _kind(r) == like]
        state: State = "not met" if bad else "not measured" if unknown or missing else "met"
        more = bad or unknown
        why = first.why if more else missing
        if len(more) > 1:
            why += f"; and {counted(len(more) - 1, 'more reading')}"
        return replace(
            first,
            state=state,
            why=why,
            least=min(values, default=None),
            most=max(values, default=None),
            readings=len(values),
            nodes=len(named),
        )

    def _no_reading(self) -> str:
        if not self.clause.bytes:
            return "no reading matches the clause"
        every = self.clause.model_copy(update={"bytes": None})
        kept = (each.checked for each in self.ledger.kept if self.work and self.work.is_of(each))
        sizes = {row.bytes for each in kept if each for row in rows_of(every, each) if row.bytes}
        known = names_text([format_bytes(size) for size in sorted(sizes)], 10) or "none"
        return f"no reading has {format_bytes(self.clause.bytes)}; it measured {known}"

    def _rows(self) -> Iterator[Result]:
        """Yield the valid rows of each run: those of nodes that were not repaired since."""
        runs = [each for each in self.ledger.kept if self.work and self.work.is_of(each)]
        number = {each.directory: n for n, each in enumerate(runs)}
        counts: dict[str, set[int]] = {}
        for node in self.ledger.nodes:
            kept = self.ledger.since_repair(node)
            counts[node] = {number[e.directory] for e in kept if e.directory in number}
        for n, each in enumerate(runs):
            for row in rows_of(self.clause, each.checked) if each.checked else ():
                of_nodes = [counts.get(name, {n}) for name in row.where.split(",")]
                # A later run of a node replaces an earlier one.
                if all(n in each for each in of_nodes) and any(max(e) == n for e in of_nodes):
                    yield row

    def _same(self) -> ClauseResult:
        facts = facts_of(self.ledger)
        for name, wanted in self.clause.facts.items():
            known = {node: each[name] for node, each in facts.items() if name in each}
            every = (*self.ledger.nodes, *self.ledger.missing)
            lost = [node for node in every if node not in known]
            if lost:
                what = f"{name} is unknown for {fold(lost)}"
                return self._not("not measured", what, where=lost[0], nodes=len(known))
            groups = grouped((value, node) for node, value in known.items())
            if len(groups) > 1 or wanted not in ("", *groups):
                value, few = min(
                    groups.items(), key=lambda item: (item[0] == wanted, len(item[1]))
                )
                usual = wanted or max(groups.items(), key=lambda item: len(item[1]))[0]
                why = f"{name} is {value} on {fold(few)}, not {usual}"
                return self._not("not met", why, where=few[0], nodes=len(known))
        return ClauseResult(clause=self.clause.text, state="met", nodes=len(self.ledger.nodes))

    def _not(self, state: State, why: str, *, where: str = "", nodes: int = 0) -> ClauseResult:
        return ClauseResult(
            clause=self.clause.text, state=state, why=why, where=where, nodes=nodes
        )


def _kind(row: Result) -> tuple[object, ...]:
    """Properties that comparable readings share."""
    return row.metric, row.bytes, row.buffers, re.sub(r"\d+", "", row.pair)


def sentence(site: str, results: Iterable[ClauseResult], events: Iterable[NodeEvent]) -> str:
    """State in one sentence whether the contract is met."""
    every = list(results)
    counts = {
        state: sum(each.state == state for each in every) for state in ("not met", "not measured")
    }
    if not any(counts.values()):
        repaired = fold(sorted({event.node for event in events}))
        after = f", after the repair of {repaired}" if repaired else ""
        return f"accepted: {site} meets all {counted(len(every), 'clause')}{after}"
    state = "not met" if counts["not met"] else "not measured"
    first = next(each for each in every if each.state == state)
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"not accepted: {first.why} ({first.clause}); {said} of {counted(len(every), 'clause')}"
