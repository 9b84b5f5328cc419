# SPDX-License-Identifier: MIT
"""Write completion for shells and a man page from the parser: ``python -m ci.docs.shell DIR``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from busbar import cli, commands, site

NAMES = {"bash": "busbar.bash", "zsh": "_busbar", "fish": "busbar.fish"}
"""Shell -> file, as the directories of completions call it."""


def main() -> None:
    """Write ``busbar.bash``, ``_busbar``, ``busbar.fish`` and ``busbar.1``."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("directory", type=Path)
    directory: Path = arguments.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    parser = cli.build_parser(commands.SUMMARIES)
    manual = str(Manpage(parser)).replace("Generated Python Manual", "Busbar")
    (directory / "busbar.1").write_text(manual, encoding="utf-8")
    for action in _actions(parser):
        if action.metavar == "SITE":
            action.choices = site.names()
        elif action.type is Path:
            vars(action)["complete"] = shtab.FILE
    for shell, name in NAMES.items():
        (directory / name).write_text(shtab.complete(parser, shell), encoding="utf-8")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)


if __name__ == "__main__":
    main()
