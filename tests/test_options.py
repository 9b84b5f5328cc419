# SPDX-License-Identifier: MIT
"""The table of options belongs to the commands that there are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from busbar import cli, commands
from busbar.commands.declare import _OPTIONS


def names(parser: argparse.ArgumentParser) -> Iterator[str]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog.removeprefix("busbar ")
    for group in groups:
        for child in group.choices.values():
            yield from names(child)


def test_each_entry_is_of_a_command() -> None:
    found = {*names(cli.build_parser(commands.SUMMARIES))}
    assert found == _OPTIONS.keys() - {"shared"}
    text = str(_OPTIONS)
    assert [name for name in _OPTIONS["shared"] if text.count(f"'{name}'") < 2] == []
