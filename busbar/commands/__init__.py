# SPDX-License-Identifier: MIT
"""The subcommands, in the order of ``busbar --help``."""

from __future__ import annotations

from typing import Any, Protocol

from busbar.commands import check, expect, explain, preflight, site, spack


class Command(Protocol):
    """What a subcommand module offers."""

    def add_parser(self, subparsers: Any) -> None:
        """Adds its parser, which sets ``run`` to a function ``(Namespace) -> exit status``."""


MODULES: tuple[Command, ...] = (check, explain, expect, preflight, site, spack)
