# SPDX-License-Identifier: MIT
"""The subcommands: one module for each."""

from __future__ import annotations

import json
from importlib import import_module
from pkgutil import get_data
from typing import Any, Protocol

GROUPS: dict[str, dict[str, str]] = json.loads(get_data(__name__, "groups.json") or "")
"""The subcommands as shown by ``busbar --help``, without loading them."""

SUMMARIES = {name: text for group in GROUPS.values() for name, text in group.items()}


class Command(Protocol):
    """The interface of a subcommand module."""

    def add_parser(self, subparsers: Any) -> None:
        """Add the parser, which sets ``run`` to a function ``(Namespace) -> exit status``."""


def load(name: str) -> Command:
    """Import the module of a subcommand, which is slow."""
    module: Command = import_module(f"{__name__}.{name}")
    return module
