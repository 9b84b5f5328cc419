# SPDX-License-Identifier: MIT
"""The subcommands: one module for each."""

from __future__ import annotations

import json
from importlib import import_module
from pkgutil import get_data
from typing import Any

GROUPS: dict[str, dict[str, str]] = json.loads(get_data(__name__, "groups.json") or "")
"""The subcommands as shown by ``busbar --help``, without loading them."""

SUMMARIES = {name: text for group in GROUPS.values() for name, text in group.items()}


def add_parser(subparsers: Any, name: str) -> None:
    """Import the module of a subcommand, which is slow, and add its parser.

    The module has a function of its own for that, or the one that runs the subcommand.
    """
    module = import_module(f"{__name__}.{name}")
    if hasattr(module, "add_parser"):
        module.add_parser(subparsers)
    else:
        import_module(f"{__name__}.declare").command(subparsers, getattr(module, name))
