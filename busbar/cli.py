# SPDX-License-Identifier: MIT
"""The command ``busbar``: one module for each subcommand."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Collection, Sequence
from typing import NoReturn

from busbar import commands
from busbar.documents import ErrorDocument
from busbar.errors import BusbarError

EXIT_USAGE = 2  # as argparse; 1 is a verdict that is not pass


class _Version(argparse.Action):
    """Ask git for the commit only if the version is wanted."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from busbar.data import full_version  # noqa: PLC0415 - nothing else needs it

        print(f"busbar {full_version()}")
        parser.exit()


class _UsageError(Exception):
    """Arguments that a parser refuses."""

    def __init__(self, usage: str, program: str, message: str) -> None:
        super().__init__(f"{usage}{program}: error: {message}")
        self.message = message


class _Parser(argparse.ArgumentParser):
    """Raise an error, which can be printed as JSON as well."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(self.format_usage(), self.prog, message)


def build_parser(loaded: Collection[str]) -> argparse.ArgumentParser:
    """Return the command line; only the subcommands in ``loaded`` have their options."""
    parser = _Parser(
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
    as_json = "--json" in words
    try:
        args = build_parser([command]).parse_args(words)
        status: int = args.run(args)
        sys.stdout.flush()
    except _UsageError as error:
        print(error, file=sys.stderr)
        if as_json:
            _print_error(command, BusbarError(error.message, hint=f"see busbar {command} --help"))
        raise SystemExit(EXIT_USAGE) from None
    except BusbarError as error:
        print(f"busbar {args.command}: {error}", file=sys.stderr)
        if as_json:
            _print_error(command, error)
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader (head, less) went away; nothing is lost that it wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _print_error(command: str, error: BusbarError) -> None:
    document: ErrorDocument = {
        "schema": "busbar-error/1",
        "command": command,
        "error": {"what": error.what, "where": error.where, "hint": error.hint},
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    sys.exit(main())
