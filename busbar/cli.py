# SPDX-License-Identifier: MIT
"""The command ``busbar``: one module for each subcommand."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import gettempdir, mkstemp
from typing import TYPE_CHECKING, Any, NoReturn

from busbar import commands
from busbar.arguments import Parser, actions
from busbar.boundary import refuse_foreign_temporary, visible
from busbar.data import full_version, to_install
from busbar.document import ErrorDocument, ErrorRow, to_json
from busbar.errors import BusbarError, suggestion
from busbar.meant import Meant, of_no_command
from busbar.mistakes import ignored_variable, of_file, refuse_other_file
from busbar.near import nearest
from busbar.redact import redact
from busbar.terminal import stderr, stdout

if TYPE_CHECKING:
    from busbar.check.processes import Interruption

_TAKE_OPTIONS = ("--sbatch",)
"""Options whose values begin with a hyphen."""
_WHAT = """\
Tests whether the GPUs and the network of a cluster are as fast as their links allow, and if not,
finds the link, node or setting at fault."""
_START_JOBS = (["check"], ["sweep", "run"], ["nightly"], ["certify", "run"])
"""Commands that start ReFrame, launchers and ranks, and must not leave any of them behind."""
_EXTRAS = {
    "reframe": "check",
    **dict.fromkeys(("jinja2", "numpy", "prometheus_client"), "history"),
}
"""Packages installed by the extras of pyproject.toml."""
EXIT_USAGE = 2  # like argparse; 1 means a verdict other than pass


class _Version(argparse.Action):
    """Ask git for the commit only if the version is requested."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        stdout().line(f"busbar {full_version()}")
        parser.exit()


class _UsageExit(SystemExit):
    """Raised for arguments that a parser refuses, after it has printed the reason."""

    def __init__(self, error: BusbarError, command: str) -> None:
        super().__init__(EXIT_USAGE)
        self.error, self.command = error, command


class _Parser(Parser):
    """Keep the error message, which is printed as JSON as well."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        known = [*(action.choices or ())]
        if known and value not in known:
            words = Meant(self._actions, self._words)
            if isinstance(action, argparse._SubParsersAction):
                hint = of_no_command(value, known, self.prog.partition(" ")[2])
            else:
                hint = words.value(action, str(value))
                if not (hint or nearest(str(value), map(str, known))):
                    hint = words.place(str(value))
            hint = hint or f"; {suggestion(str(value), map(str, known))}"
            hint += "; or omit it" if action.nargs == "?" else ""
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        kind = self._registry_get("type", action.type, action.type)  # argparse hides a ValueError
        try:
            return kind(arg_string)
        except (ValueError, argparse.ArgumentTypeError) as error:
            hint = Meant(self._actions, self._words).value(action, arg_string)
            raise argparse.ArgumentError(action, f"{error}{hint}") from error

    def meant(self, word: str) -> str:
        known = Meant(self._actions, self._words)
        if word.startswith("-"):
            return known.option(word)
        return known.place(word) or known.no_place(word)

    def error(self, message: str) -> NoReturn:
        try:
            super().error(message)
        except SystemExit:
            error = BusbarError(message, hint=f"see {self.prog} --help")
            raise _UsageExit(error, self.prog.removeprefix("busbar").strip()) from None


def build_parser(loaded: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser; only the subcommands in ``loaded`` have their options."""
    lists = (
        "\n".join([f"  {heading}:", *(f"    {name:<10} {text}" for name, text in group.items())])
        for heading, group in commands.GROUPS.items()
    )
    parser = _Parser(
        prog="busbar",
        description="\n\n".join([_WHAT, *lists]),
        epilog="busbar COMMAND --help lists the options, exit statuses and examples of a command.",
    )
    parser.add_argument("--version", action=_Version, help="print version and commit, and exit")
    subparsers = actions(parser)
    for name in commands.SUMMARIES:
        if name in loaded:
            commands.add_parser(subparsers, name)
        else:
            subparsers.add_parser(name)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    words = _joined(words)
    names = [word for word in words if not word.startswith("-")]
    command = next((word for word in names if word in commands.SUMMARIES), *names[:1] or [""])
    os.umask(os.umask(0o077) | 0o002)  # other users may read the reports but not change them
    try:
        if not any(names[: len(each)] == each for each in _START_JOBS):
            return _run(words, command)
        from busbar.check.processes import supervised  # noqa: PLC0415 - only these commands

        return supervised(partial(_run, words, command))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _joined(words: list[str]) -> list[str]:
    """Join an option with a value that is an option: argparse takes ``--qos=x`` for ours."""
    for n, word in enumerate(words[:-1]):
        if word in _TAKE_OPTIONS:
            return [*words[:n], f"{word}={words[n + 1]}", *_joined(words[n + 2 :])]
    return words


def _run(words: list[str], command: str, interruption: Interruption | None = None) -> int:
    try:
        with _explained():
            _refuse_options_first(words)
            args = build_parser([command]).parse_args(words)
            command = args.prog.removeprefix("busbar").strip()
            args.command_line, args.interruption = words, interruption
            if ignored := ignored_variable(command, vars(args)):
                stderr().line(f"busbar: {ignored}")
            refuse_foreign_temporary()
            refuse_other_file(command, words)
            status: int = args.run(args)
            sys.stdout.flush()
    except _UsageExit as end:
        if "--json" in words:
            _print_error(end.command, end.error)
        end.code = _usage_status(command)
        raise
    except BusbarError as problem:
        error = of_file(problem, command, words)
        for one in (error, *error.others):
            stderr().line(f"busbar {command}: {one.alone()}")
        if "--json" in words:
            _print_error(command, error)
        return _usage_status(command)
    except BrokenPipeError:
        # The reader (head, less) has exited and does not need the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - a bug is never a verdict: 1 would say so
        what = redact(f"{type(error).__name__}: {error}")[:200]
        stderr().line(f"busbar {command}: internal error: {what}; {_logged(error)}")
        return _usage_status(command)
    return status


@contextmanager
def _explained() -> Iterator[None]:
    """Explain what is not a bug: a name that no file can have, a package that is not installed."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        name = str(error.filename)[:60]
        raise BusbarError(f"{name!a}... is too long for a file name", hint="shorten it") from error
    except UnicodeEncodeError as error:
        raise BusbarError(f"{error.object[:60]!a} is not UTF-8", hint="correct it") from error
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not (extra := _EXTRAS.get(module)):
            raise
        what = f"needs the Python package {module}, which is not installed"
        raise BusbarError(what, hint=to_install(extra)) from error


def _refuse_options_first(words: list[str]) -> None:
    """Raise ``BusbarError`` for options before the command they belong to."""
    names = [word for word in words if word in commands.SUMMARIES]
    if names and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        after = shlex.join([names[0], *(word for word in words if word != names[0])])
        raise BusbarError(f"{words[0]} must come after the command", hint=f"write: busbar {after}")


def _usage_status(command: str) -> int:
    """Return 2, or 0 for the gate in a prolog: a wrong option must not drain a node."""
    if command != "gate":
        return EXIT_USAGE
    from busbar.gate.command import usage_status  # noqa: PLC0415 - only for this command

    return usage_status()


def _print_error(command: str, error: BusbarError) -> None:
    row = ErrorRow(error.what, error.where, error.hint)
    stdout().document(to_json(ErrorDocument(command=command, error=row)))


def _logged(error: Exception) -> str:
    """Write the redacted traceback to a file that only the user can read."""
    text = f"busbar {full_version()}\n{redact(''.join(traceback.format_exception(error)))}"
    try:
        descriptor, name = mkstemp(prefix="busbar-", suffix=".log")
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(visible(text))
    except OSError as problem:
        return f"the log cannot be written to {gettempdir()}: {problem.strerror}"
    return f"please report it with the log {name}"


if __name__ == "__main__":
    sys.exit(main())
