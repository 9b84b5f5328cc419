# SPDX-License-Identifier: MIT
"""The work that a contract still requires, and the nodes to run it on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from busbar.certify.contract import Clause, Contract
from busbar.certify.ledger import Kept, Ledger
from busbar.words import counted

_SECONDS = {"gate": 10, "sweep": 60, "check": 60}
"""Approximate time of one run: on nodes with eight GPUs, checks took 16 to 45 s."""
_HOUR_S = 3600
_LEAST_SWEPT = 4
"""Nodes of a sweep after a repair: with fewer, the slow node of a pair is unknown."""


@dataclass(frozen=True)
class Work:
    """One kind of run that clauses require."""

    kind: Literal["gate", "sweep", "check", "soak"]
    check: str = ""
    """The check, as for ``busbar check --name``."""
    together: int = 1
    """Number of nodes that it runs on together; 1 means each node alone."""
    times: int = 1
    """How many runs each node must take part in."""
    seconds: float = 0.0
    """How long each node must take part in runs."""

    @property
    def name(self) -> str:
        """The name of its runs: the check, with the number of nodes."""
        several = self.check and self.together > 1
        return f"{self.check} on {self.together} nodes" if several else self.check

    def is_of(self, each: Kept) -> bool:
        """Whether a run belongs to this work and produced its results."""
        return (each.run.kind, each.run.work) == (self.kind, self.name) and each.measured

    @property
    def estimate(self) -> float:
        """Estimated seconds for the whole work."""
        return self.seconds or _SECONDS[self.kind] * self.times


def work_of(clause: Clause) -> Work | None:
    """Return the work that measures a clause; None if any check does."""
    match clause.require:
        case "gate":
            return Work("gate")
        case "sweep":
            return Work("sweep", together=2, times=clause.times)
        case "soak":
            return Work("soak", seconds=(clause.hours or 0) * _HOUR_S)
        case "same":
            return None
    return Work("check", clause.name, clause.nodes)


def works(contract: Contract) -> list[Work]:
    """Return the work for all clauses without duplicates, in the order in which it runs."""
    found = list(dict.fromkeys(filter(None, map(work_of, contract.clauses))))
    if any(c.require == "same" for c in contract.clauses) and not any(w.check for w in found):
        found.append(Work("check", "memory"))  # every check reports the facts of its nodes
    return sorted(found, key=lambda work: [*_SECONDS, "soak"].index(work.kind))


def soaked(contract: Contract) -> list[str]:
    """Return the checks that a soak repeats: the single-node checks."""
    return [c.name for c in contract.clauses if c.name and c.nodes == 1] or ["memory"]


def lacking(work: Work, ledger: Ledger) -> tuple[str, ...]:
    """Return the nodes to run it on next; empty if it is complete."""
    aside = ledger.set_aside
    good = [node for node in ledger.nodes if node not in aside]
    if work.kind == "check" and work.together > 2:
        # On this number of nodes together, in any combination.
        for each in ledger.kept:
            if work.is_of(each) and ledger.stands(each) and not each.nodes & aside.keys():
                return ()
        return tuple(good[: work.together]) if len(good) >= work.together else ()
    missing = [node for node in good if not done(work, node, ledger)]
    if not missing or len(good) < work.together:
        return ()
    needed = _LEAST_SWEPT if work.kind == "sweep" else work.together + 1
    if work.together > 1 and len(missing) < len(good):
        others = (node for node in good if node not in missing)
        missing += [node for node, _ in zip(others, range(needed - len(missing)), strict=False)]
    return tuple(node for node in ledger.nodes if node in frozenset(missing))


def done(work: Work, node: str, ledger: Ledger) -> bool:
    """Whether a node has completed the work since its last repair."""
    runs = [each for each in ledger.since_repair(node) if work.is_of(each)]
    if work.seconds:
        return sum(each.run.seconds for each in runs) >= work.seconds
    return len(runs) >= work.times


def planned(contract: Contract, nodes: int) -> Iterator[str]:
    """Yield the estimated time of the whole contract on ``nodes``: each work, and the total."""
    seconds = hours = 0.0
    for work in works(contract):
        count = work.together if work.together > 2 else nodes
        seconds += work.estimate
        hours += work.estimate * count / _HOUR_S
        times = f" {work.times} times" if work.times > 1 else ""
        where = counted(count, "node")
        yield f"{work.name or work.kind}{times}: {where}, about {_time(work.estimate)}"
    yield f"in all about {_time(seconds)}, {hours:.2g} node hours"


def _time(seconds: float) -> str:
    return f"{seconds / _HOUR_S:.3g} h" if seconds >= _HOUR_S else f"{seconds / 60:.2g} min"
