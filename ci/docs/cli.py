# SPDX-License-Identifier: MIT
"""The page of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from busbar import cli, commands

from .markdown import plain, quoted, table


def cli_page() -> str:
    """Every command with its options."""
    parser = cli.build_parser(commands.SUMMARIES)
    return "\n".join(["# Command line", "", f"{parser.epilog}", "", *_commands(parser)])


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    rows, below = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help for each in action._choices_actions}
            below = [(child, helps.get(name)) for name, child in action.choices.items()]
            continue
        if action.help == argparse.SUPPRESS:
            continue
        words = action.option_strings or [action.metavar or action.dest]
        value = ""
        if action.nargs != 0 and action.option_strings:
            choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
            value = f" {action.metavar or choices or action.dest.upper()}"
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        choices = f" One of {quoted(action.choices)}." if action.choices and not value else ""
        rows.append((quoted(f"{word}{value}" for word in words), plain(text) + choices))
    yield from table(("option", "meaning"), rows)
    for child, summary in below:
        yield from (f"## `{child.prog}`", "")
        if description := child.description or summary:
            yield from (plain(description[0].upper() + description[1:]), "")
        yield from _commands(child)
