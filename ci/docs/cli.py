# SPDX-License-Identifier: MIT
"""The page of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from textwrap import dedent

from busbar import cli, commands

from .markdown import plain, quoted, table


def cli_page() -> Iterator[str]:
    """Every command with its options."""
    parser = cli.build_parser(commands.SUMMARIES)
    yield from (f"{parser.epilog}", "")
    yield from _commands(parser)


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows, below = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = list(action.choices.values())
            continue
        if action.help == argparse.SUPPRESS:
            continue
        words = action.option_strings or [action.metavar or action.dest]
        value = ""
        if action.nargs != 0 and action.option_strings:
            choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
            value = f" {action.metavar or choices or action.dest.upper()}"
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        rows.append((quoted(f"{word}{value}" for word in words), plain(text)))
    yield from table(("option", "meaning"), rows)
    for child in below:
        yield from (f"## `{child.prog}`", "")
        for part in (child.description or "").split("\n\n"):
            example = f"```\n{dedent(part)}\n```" if part.startswith(" ") else plain(part)
            yield from (example, "")
        yield from _commands(child)
