# SPDX-License-Identifier: MIT
"""The subcommands: one module for each."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

GROUPS = {
    "Begin with": {
        "check": "run the checks on this machine and print verdicts",
        "explain": "name the cause of a slow or failed run from its output",
        "job": "say why a running job is slow or stuck",
        "sweep": "find the slow node among thousands",
        "gate": "check in seconds whether this node may take jobs",
        "report": "write pages, mail or metrics from the results of runs",
        "demo": "show on recorded faults what these commands print",
    },
    "What to expect, and of what": {
        "site": "list, show, detect and calibrate sites; print their environment",
        "expect": "print limit and band of a benchmark on a site",
        "preflight": "check before a job whether an image runs at full speed",
    },
    "Night after night": {
        "nightly": "gate, sweep and check a partition of Slurm, one after the other",
        "node": "show what is known of nodes, and what to do next",
        "history": "show what changed since when, compare sessions, import results",
        "certify": "measure what a contract promises, and keep a signed record",
    },
}
"""The subcommands as ``busbar --help`` shows them, which loads none of them."""

SUMMARIES = {name: text for group in GROUPS.values() for name, text in group.items()}


class Command(Protocol):
    """What a subcommand module offers."""

    def add_parser(self, subparsers: Any) -> None:
        """Add its parser, which sets ``run`` to a function ``(Namespace) -> exit status``."""


def load(name: str) -> Command:
    """Import the module of a subcommand, which takes a while."""
    module: Command = import_module(f"{__name__}.{name}")
    return module
