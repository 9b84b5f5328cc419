# SPDX-License-Identifier: MIT
"""The command ``busbar``: one module for each subcommand."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from busbar import commands
from busbar.errors import BusbarError

if TYPE_CHECKING:
    from busbar.check.processes import Interruption

EXIT_USAGE = 2  # as argparse; 1 is a verdict that is not pass


class _Version(argparse.Action):
    """Ask git for the commit only if the version is wanted."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from busbar.data import full_version  # noqa: PLC0415 - nothing else needs it

        print(f"busbar {full_version()}")
        parser.exit()


def build_parser(loaded: Collection[str]) -> argparse.ArgumentParser:
    """Return the command line; only the subcommands in ``loaded`` have their options."""
    parser = argparse.ArgumentParser(
        prog="busbar",
        description="Proves that a GPU communication stack is as fast as the links allow.",
        epilog="Each command lists its exit statuses.",
    )
    parser.add_argument("--version", action=_Version, help="print version and commit, and exit")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in commands.SUMMARIES.items():
        if name in loaded:
            commands.load(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand and returns its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    command = next((word for word in words if not word.startswith("-")), "")
    try:
        if command != "check":
            return _run(words, command)
        from busbar.check.processes import supervised  # noqa: PLC0415 - only this command

        # It starts ReFrame, launchers and ranks, of which nothing may be left.
        return supervised(partial(_run, words, command))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(words: list[str], command: str, interruption: Interruption | None = None) -> int:
    args = build_parser([command]).parse_args(words)
    args.interruption = interruption
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except BusbarError as error:
        print(f"busbar {args.command}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader (head, less) went away; nothing is lost that it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
