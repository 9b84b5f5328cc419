# SPDX-License-Identifier: MIT
"""The document of ``busbar sweep run``; ``busbar sweep analyse`` writes ``Analysis``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from busbar.cluster.sweep.accusation import Accusation, accused_twice
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.second_pass import SuspectPair
from busbar.document import Contradictions, Sealed, read_document
from busbar.units import outside
from busbar.verdict import Verdict

_MOST = dict.fromkeys(("rounds", "steps", "launch_s", "measured_s", "median_gb_per_s"), 1e7)
_NOTHING = (Verdict.FAILED, Verdict.NOT_RUN)
_ALSO = {
    *((verdict, Verdict.PASS) for verdict in (Verdict.UNJUDGED, Verdict.UNKNOWN)),
    *((verdict, Verdict.UNKNOWN) for verdict in _NOTHING),
}
"""Verdicts that do not follow from the lists."""


@dataclass(frozen=True)
class RunAccusation(Accusation):
    """Something that ``busbar sweep run`` proves slow."""

    confirmed: bool = False
    """Whether it was slow again when it was measured again, a node with good nodes, or counters
    prove it."""


@dataclass(frozen=True)
class GoneNode:
    """A node that ended its part before the sweep ended."""

    node: str
    """Its name."""
    reason: str
    """How it was lost."""


@dataclass(frozen=True, kw_only=True)
class SweepRun(Sealed):
    """The verdict of a sweep."""

    schema: Literal["busbar-sweep-run/1"] = "busbar-sweep-run/1"
    """The schema of this document."""
    verdict: Verdict
    """Verdict of the fleet."""
    nodes: tuple[str, ...]
    """The nodes of the plan."""
    median_gb_per_s: float | None = None
    """Median of all pairs with all NICs at once; null if nothing was measured."""
    accused: tuple[RunAccusation, ...]
    """What is slow."""
    suspects: tuple[SuspectPair, ...]
    """Pairs that are still undecided."""
    unsteady: tuple[str, ...] = ()
    """Nodes that are slow at times, with several partners, as with packet loss; not accused."""
    wrong_data: tuple[str, ...] = ()
    """Pairs ``NODE-NODE`` that received wrong data, and ``NODE/LINK``."""
    unmeasured: tuple[str, ...]
    """Nodes, ``NODE/NIC``, ``NODE/LINK`` and pairs that could not be measured."""
    gone: tuple[GoneNode, ...] = ()
    """Nodes that stopped answering."""
    stopped: str = ""
    """Why the sweep ended early; empty if it did not."""
    notes: tuple[str, ...] = ()
    """What limits these results."""
    rounds: int = 0
    """Rounds that were measured by this run."""
    steps: int = 0
    """Steps of Slurm: 1 unless nodes were lost."""
    launch_s: float = 0.0
    """Time from `srun` until all ranks were ready, of all steps."""
    measured_s: float = 0.0
    """Time of all rounds."""
    output: str = ""
    """Directory of plan and results."""

    def contradictions(self) -> Contradictions:
        """Yield each key that contradicts others, or has an impossible value."""
        yield from accused_twice(self.accused)
        known = {*self.nodes}
        if len(known) < len(self.nodes) or "" in known:
            yield "nodes", "has a node twice, or one without a name"
        named = {*self.unsteady, *(each.node for each in self.gone)}
        named |= {node for one in self.accused for node in one.nodes}
        named |= {node for pair in self.suspects for node in (pair.a, pair.b)}
        if other := named - known:
            yield "nodes", f"lacks {min(other)!a}, of which something is said"
        yield from outside(self, _MOST)
        listed = self.unmeasured or self.suspects or self.unsteady or self.stopped
        means = Verdict.UNKNOWN if listed else Verdict.PASS
        means = Verdict.DEGRADED if self.accused else means
        means = Verdict.FAILED if self.wrong_data or self.gone else means
        nothing = not self.median_gb_per_s and self.verdict in _NOTHING
        if self.verdict is not means and (self.verdict, means) not in _ALSO and not nothing:
            yield "verdict", f"is {self.verdict}, but the lists mean {means}"


def read_sweep(path: Path) -> Analysis | SweepRun:
    """Return the verdict in a file; raise ``BusbarError`` for anything else."""
    hint = "pass the JSON output of busbar sweep analyse or busbar sweep run"
    return read_document(path, hint, Analysis, SweepRun)
