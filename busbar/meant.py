# SPDX-License-Identifier: MIT
"""What was meant by a word that a command does not take.

Each answer is the end of an error message: what to type instead, or nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from busbar.arguments import accepts
from busbar.errors import BusbarError, near
from busbar.mistakes import other_command, reader
from busbar.parse.tables import beside
from busbar.site.load import find

_TIME = re.compile(r"(?P<count>\d+(?:\.\d+)?) ?(?P<unit>[smhd])[a-z]*")


class Meant:
    """The words of a command line, and the options and arguments that its command takes."""

    def __init__(self, actions: Sequence[argparse.Action], words: Sequence[str]) -> None:
        self._words = words
        self._options = {each.option_strings[-1]: each for each in actions if each.option_strings}
        self._of_slurm = self._options.pop("--sbatch", None)
        self._places = [each.metavar for each in actions if not each.option_strings]

    def option(self, unknown: str) -> str:
        """Return what an unknown option means: a near name, or one of another program."""
        word, equals, value = unknown.partition("=")
        value = value if equals else dict(pairwise(self._words)).get(word, "")
        close = near(word, self._options) if len(word) > 2 else ""
        rows = [row for row in beside(__file__)["options"] if word in row["names"]]
        ours = [(row["of"], key) for row in rows for key in row["ours"] if key in self._options]
        if ours and close not in [key for _, key in ours]:
            of, key = ours[0]
            return f" (an option of {of}); write {self._written(key, value)}"
        if then := [f" (an option of {row['of']}); {row['then']}" for row in rows if row["then"]]:
            return then[0]
        name = word.lstrip("-")
        metavar = name.rpartition("-")[2].upper()
        found = [
            key
            for key, each in self._options.items()
            if each.metavar == metavar or value in (each.choices or ()) or key == f"--{value}"
        ]
        begun = [key for key in self._options if key.startswith(f"--{name}")]  # -s for --site
        found = [*found, close] if close else found or begun or self._named_in_help(name)
        hint = f"; did you mean {' or '.join(map(repr, dict.fromkeys(found)))}?" if found else ""
        if self._of_slurm and not close:
            given = f"{word}{'=' if word.startswith('--') else ' '}{value}" if value else word
            hint += f"; an option of Slurm is given as --sbatch '{given}'"
        if self._places and (metavar in self._places or not hint) and not close:
            place = metavar if metavar in self._places else self._places[0]
            return f"; {place} is given without an option"
        return hint

    def _named_in_help(self, name: str) -> list[str]:
        begins = re.compile(rf".{{,30}}\b{re.escape(name.removesuffix('s'))}s?\b", re.IGNORECASE)
        known = self._options.items() if len(name) > 1 else ()
        return [key for key, each in known if begins.match(each.help or "")]

    def _written(self, key: str, value: str) -> str:
        """Return an option with the value if that is (almost) valid, otherwise with its form."""
        action = self._options[key]
        is_count = value.isdecimal() and not (action.type or action.choices)  # -N 2 is no name
        if value and not is_count and (valid := next(_valid(action, value), "")):
            return f"{key} {shlex.quote(valid)}"
        known = " or ".join(shlex.quote(str(each)) for each in action.choices or ())
        return f"{key} {action.metavar or known}"

    def value(self, action: argparse.Action, value: str) -> str:
        """Return the valid value that is meant: with the word after it, or in another unit."""
        key = action.option_strings[-1] if action.option_strings else ""
        both = f"{value} {dict(pairwise(self._words)).get(value, '')}"
        if key and (action.type or action.choices) and accepts(action, both):
            return f"; write {key} {shlex.quote(both)}"
        meant = next(_valid(action, value), "")
        return f"; did you mean {f'{key} {meant}'.strip()!r}?" if meant else ""

    def place(self, word: str) -> str:
        """Return the option that takes a word: of that value, the one before it, of a site."""
        before = self._words[: self._words.index(word)] if word in self._words else []
        options = self._options
        quoted = ""
        if last := [n for n, each in enumerate(before) if each.startswith("-")]:
            option, _, value = (
                " ".join([*before[last[-1] :], word]).replace("=", " ", 1).partition(" ")
            )
            action = next((a for a in options.values() if option in a.option_strings), None)
            is_typed = action and (action.type or action.choices) and action.type is not Path
            if option == "--sbatch" or (action and is_typed and accepts(action, value)):
                quoted = f"; write {option} {shlex.quote(value)}"
            elif action and is_typed and accepts(action, value.replace(" ", ",")):
                quoted = f"; write {option} {value.replace(' ', ',')}"
        kinds = {"DIR": not os.path.isfile(word), "FILE": os.path.isfile(word)}
        of_paths = [key for key, each in options.items() if kinds.get(str(each.metavar))]
        found = [key for key, each in options.items() if word in (each.choices or ())]
        if not (found or quoted) and _is_site(word) and "--site" in options:
            found = ["--site"]
        found = found or [key for key in ["--name"] if key in options and word.isidentifier()]
        if not (found or quoted) and ("/" in word or "." in word):
            found = [key for key in of_paths if key == "--output"] or of_paths
        return quoted or (f"; did you mean '{found[0]} {word}'?" if found else "")


def of_no_command(word: str, known: Sequence[str]) -> str:
    """Return the command that is meant by a word, or that takes it: a site, or a file."""
    if os.path.isfile(word):
        return f"; write {reader(Path(word))}"
    if os.sep in word and _is_site(word):
        return f"; write busbar COMMAND --site {word}"
    meant = other_command(word, known)
    return f"; {meant}" if meant else ""


def _is_site(word: str) -> bool:
    with suppress(BusbarError):  # an invalid site is none to suggest
        return bool(find(word))
    return False


def _valid(action: argparse.Action, value: str) -> Iterator[str]:
    """Yield a value and what is like it, as far as the option accepts it."""
    nearly = [value, f"{value}m", f"{value}%", value.replace(",", "."), value.strip("'\" ")]
    time = _TIME.fullmatch(value)
    names = f"{action.metavar} {action.option_strings}"  # H ['--max-hours']
    if time and re.search(rf"(?:^|-){time['unit']}[a-z]*[ ']", names, re.IGNORECASE):
        nearly.append(time["count"])
    yield from (each for each in nearly if accepts(action, each))
