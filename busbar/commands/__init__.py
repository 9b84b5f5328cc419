# SPDX-License-Identifier: MIT
"""The subcommands: one module for each."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

SUMMARIES = {
    "check": "run the checks on this machine and print verdicts",
    "explain": "name the cause of a slow or failed run from its output",
    "expect": "print the expected result of a benchmark on a site",
    "gate": "check in seconds whether this node may take jobs, for Slurm",
    "history": "show what changed since when, compare sessions, import results",
    "nightly": "gate, sweep and check a partition of Slurm at night, one after the other",
    "preflight": "check before a job whether an image runs at full speed on a site",
    "report": "write pages, text or metrics from the results of runs",
    "site": "list, show, lint and detect sites; print their environment",
    "sweep": "find the slow node among thousands: plan pairs, measure, analyse",
    "spack": "print the environment of a site for Spack, and its module settings",
}
"""By subcommand, in the order of ``busbar --help``, which loads none of them."""


class Command(Protocol):
    """What a subcommand module offers."""

    def add_parser(self, subparsers: Any) -> None:
        """Add its parser, which sets ``run`` to a function ``(Namespace) -> exit status``."""


def load(name: str) -> Command:
    """Import the module of a subcommand, which takes a while."""
    module: Command = import_module(f"{__name__}.{name}")
    return module
