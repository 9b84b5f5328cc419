# SPDX-License-Identifier: MIT
"""Command lines: options are declared as in the help text, which is the docstring.

Uses the standard library only, because `busbar gate` has nothing else.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from busbar.boundary import one_line, visible
from busbar.near import nearest, question

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

Declaration = Callable[[argparse._ActionsContainer], object]
"""Adds one or more options to a parser."""

PATHS = ("FILE", "DIR", "PATH")
"""Metavars of arguments that default to type `Path`."""
_STEP = re.compile(r"; (?P<verb>write|did you mean) (?P<what>[^;]+)$")
_OF_FILES = re.compile(r"\.(?:csv|html|json|log|md|out|pdf|png|txt|xml|yaml)")


def option(spec: str, text: str, **settings: Any) -> Declaration:
    """Declare an option as in the help text: ``--json``, ``-n, --name NAME...``, ``FILE...``.

    An option without a metavar is a flag. ``...`` marks a repeatable option. ``settings`` are
    passed to ``add_argument``; help shows the default and whether an option can be repeated.
    """
    words = spec.replace(",", " ").split()
    names = [word for word in words if word.startswith("-")]
    value = "" if names == words else words[-1]
    metavar = value.removesuffix("...")
    several = metavar != value
    if metavar in PATHS:
        settings.setdefault("type", _directory if metavar == "DIR" else Path)
    if not names:
        names = [settings.pop("dest", metavar.lower())]
        settings = {"nargs": "*"} | settings if several else settings
    elif several:
        settings = {"action": "append", "default": []} | settings
        text += " (repeatable)"
    elif not metavar and not settings.keys() & {"choices", "action"}:
        settings["action"] = "store_true"
    if settings.get("default") and "(default" not in text:
        text += " (default: %(default)s)"
    settings |= {"metavar": metavar} if metavar else {}
    return lambda parser: parser.add_argument(*names, help=text, **settings)


def _directory(text: str) -> Path:
    path = Path(text)
    if _OF_FILES.fullmatch(path.suffix) and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is the name of a file, not of a directory")
    return path


def together(title: str, options: Iterable[Declaration]) -> Declaration:
    """Declare options under a heading of the help; those of ``one of`` are mutually exclusive."""

    def add(parser: argparse._ActionsContainer) -> None:
        one = title == "one of"
        group = parser.add_mutually_exclusive_group() if one else parser.add_argument_group(title)
        for each in options:
            each(group)

    return add


def described(run: Callable[..., object], **words: str) -> tuple[str, str]:
    """Return the summary and the full help of a command, from the docstring of its function."""
    text = cleandoc(run.__doc__ or "")
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    summary = text.partition("\n")[0].removesuffix(".")
    return summary[:1].lower() + summary[1:], text


class _Help(argparse.HelpFormatter):
    """Help with a short usage line, paragraphs, and examples to copy."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = (p if p.startswith(" ") else fill(p, width, indent) for p in text.split("\n\n"))
        return "\n\n".join(parts)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # Do not break options in help texts at their hyphens.
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None,
    ) -> str:
        every = list(actions)
        shown = [each for each in every if each.required or not each.option_strings]
        text = super()._format_usage(usage, shown, [], prefix)
        options = " [options]" if len(shown) < len(every) else ""
        return text.replace(self._prog, f"{self._prog}{options}", 1)


class Parser(argparse.ArgumentParser):
    """A parser that escapes its messages and suggests the word that was probably meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **settings)
        self._words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where the valid options are known."""
        self._words = [*(args or ())]
        # First, because argparse takes the value of an unknown option for a positional argument.
        unknown = [] if self._subparsers else [*filter(self._is_unknown, args or ())]
        if not unknown:
            found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant_by(unknown)}")
        return found, unknown

    def _meant_by(self, words: Sequence[str]) -> str:
        """Return the replacement of the first word, and of the next one if it has another."""
        first, *others = dict.fromkeys(map(self.meant, words))
        step = _STEP.search(first)
        for other in others[:1] if step else ():
            more = _STEP.search(other)
            if step and more and step["verb"] == more["verb"]:
                return f"{first.rstrip('?')} and {more['what']}"
        return first

    def _is_unknown(self, word: str) -> bool:
        name = word.partition("=")[0]
        known = self._option_string_actions
        if not name.startswith("--"):  # -n, -nmemory, -vn
            return bool(re.match(r"-[A-Za-z]", name)) and name[:2] not in known
        return len(name) > 2 and name not in known

    def meant(self, word: str) -> str:
        """Return the replacement for an invalid word, as the end of an error."""
        asked = question(nearest(word, self._option_string_actions))
        return f"; {asked}" if asked else ""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stderr).write(visible(message))

    def error(self, message: str) -> NoReturn:
        """Print ``message`` as one line, and exit with status 2."""
        is_said = re.search("did you mean|; write|--sbatch", message)
        see = "" if is_said else f"; see {self.prog} --help"
        if message.endswith("expected one argument"):  # --bytes -16M
            names = message.split()[1].rstrip(":").split("/")
            after = [b for a, b in pairwise(self._words) if a in names and b.startswith("-")]
            message += f", not the option {after[0]!r}" if after else ""
            message += (
                f"; write {names[-1]} {self._option_string_actions[names[-1]].metavar or 'VALUE'}"
            )
        message = message.replace("ignored explicit argument", "takes no value, got")
        if message.endswith("required: --site") or "IMAGE, --site" in message:
            see = "; busbar site list prints the sites, and local is this machine"
        self.exit(2, f"{self.prog}: error: {one_line(message)}{see}\n")


def accepts(action: argparse.Action, value: str) -> bool:
    """Return whether a value is valid for an option."""
    try:
        found = action.type(value) if callable(action.type) else value
    except (ValueError, argparse.ArgumentTypeError):
        return False
    return not action.choices or found in action.choices


def actions(parser: argparse.ArgumentParser) -> Any:
    """Add subcommands to a parser, which prints its help if none is given."""

    def run(_: argparse.Namespace) -> int:
        parser.print_help()
        return 0

    parser.set_defaults(run=run, prog=parser.prog)
    return parser.add_subparsers(metavar="COMMAND", prog=parser.prog)
