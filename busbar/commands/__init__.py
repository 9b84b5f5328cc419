# SPDX-License-Identifier: MIT
"""The subcommands: one module for each."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

NAMES = ("check", "explain", "expect", "preflight", "site", "spack")
"""In the order of ``busbar --help``."""


class Command(Protocol):
    """What a subcommand module offers."""

    def add_parser(self, subparsers: Any) -> None:
        """Adds its parser, which sets ``run`` to a function ``(Namespace) -> exit status``."""


def load(name: str) -> Command:
    """The module of a subcommand; each takes a while to import."""
    module: Command = import_module(f"{__name__}.{name}")
    return module
