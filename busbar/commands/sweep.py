# SPDX-License-Identifier: MIT
"""``busbar sweep``: plan, measure and analyse pairs of nodes."""

from __future__ import annotations

from typing import Any

from busbar.cluster.sweep.analyse import TOLERANCE
from busbar.commands import sweep_analyse, sweep_plan, sweep_run
from busbar.commands.declare import command, group


def add_parser(subparsers: Any) -> None:
    """Add ``busbar sweep`` and its actions, of which `run` does all that the others do."""
    text = "Measure all nodes in pairs at the same time, and name what is slow."
    actions = group(subparsers, "sweep", text)
    command(actions, sweep_run.run, TOLERANCE=TOLERANCE)
    command(actions, sweep_plan.plan)
    command(actions, sweep_analyse.analyse, TOLERANCE=TOLERANCE)
