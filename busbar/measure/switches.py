# SPDX-License-Identifier: MIT
"""The switches that Slurm knows, as the file that the planner reads."""

from __future__ import annotations

import re
from pathlib import Path

from busbar.check.slurm import answer
from busbar.check.surroundings import write
from busbar.sweep.topology import Topology, read_topology

FILE = "topology.conf"
_SECONDS = 30
_LEAF = re.compile(r"(?:SwitchName=\S+ Level=0|BlockName=\S+) .*\bNodes=[^(\s]")


def topology(file: Path | None, directory: Path) -> Topology:
    """Return the topology of a file, else what Slurm knows; a resumed sweep keeps its own."""
    if file:
        return read_topology(file)
    kept = directory / FILE
    if not kept.exists():
        write(kept, leaves(answer(["scontrol", "show", "topology"], _SECONDS)))
    return read_topology(kept) if kept.stat().st_size else Topology()


def leaves(text: str) -> str:
    """Return the lines of ``scontrol show topology`` for leaf switches and blocks."""
    return "".join(f"{line}\n" for line in text.splitlines() if _LEAF.match(line.strip()))
