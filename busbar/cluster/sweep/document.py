# SPDX-License-Identifier: MIT
"""The document of ``busbar sweep run``; ``busbar sweep analyse`` writes ``Analysis``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from busbar.cluster.sweep.accusation import Accusation
from busbar.cluster.sweep.analyse import Analysis
from busbar.cluster.sweep.second_pass import SuspectPair
from busbar.document import read_document
from busbar.verdict import Verdict


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
class SweepRun:
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


def read_sweep(path: Path) -> Analysis | SweepRun:
    """Return the verdict in a file; raise ``BusbarError`` for anything else."""
    hint = "pass the JSON output of busbar sweep analyse or busbar sweep run"
    sweep: Analysis | SweepRun = read_document(path, hint, Analysis, SweepRun)
    return sweep
