# SPDX-License-Identifier: MIT
"""``busbar sweep``: plan, measure and analyse pairs of nodes."""

from __future__ import annotations

import argparse
from types import ModuleType
from typing import Any

from busbar.commands import sweep_analyse, sweep_plan, sweep_run

_ACTIONS: tuple[ModuleType, ...] = (sweep_plan, sweep_run, sweep_analyse)
"""One module for each action, in the order of ``busbar sweep --help``; each has `add_parser`."""


def add_parser(subparsers: Any) -> None:
    """Add ``busbar sweep`` and its actions."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sweep",
        description="Measure all nodes in pairs at the same time, and name what is slow.",
    )
    actions = parser.add_subparsers(dest="sweep_command", required=True, metavar="ACTION")
    for action in _ACTIONS:
        action.add_parser(actions)
