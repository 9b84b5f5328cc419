# SPDX-License-Identifier: MIT
"""The subcommands, in the order of ``busbar --help``."""

from __future__ import annotations

from typing import Protocol


class Command(Protocol):
    """What a subcommand module offers."""

    def add_parser(self, subparsers: object) -> None:
        """Adds its parser, which sets ``run`` to a function ``(Namespace) -> exit status``."""


MODULES: tuple[Command, ...] = ()
