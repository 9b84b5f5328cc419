# SPDX-License-Identifier: MIT
"""What was meant by a word that a command does not take.

Each answer is the end of an error message: what to type instead, or nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from busbar.arguments import PATHS, accepts
from busbar.commands import SUMMARIES
from busbar.errors import BusbarError
from busbar.mistakes import commands_with, other_command, reader
from busbar.near import nearest, question
from busbar.parse.tables import beside
from busbar.site.load import find
from busbar.site.model import Partition, Site
from busbar.slurm.options import sbatch_options
from busbar.units import SECONDS, duration

_SITE_KEYS = {*Site.model_fields, *Partition.model_fields} - {"name"}
_MOST = 2
_RATE = re.compile(
    r"(?P<count>\d{1,9}(?:\.\d{1,9})?) ?[Gg](?:i?B|(?P<bits>b(?:its?)?))?(?:/s|ps)?"
)


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
        close = nearest(word, self._options) if len(word) > len("-s") else []
        return (
            self._of_program(word, value, close)
            or self._without_option(word, value, close)
            or self._of_ours(word, value, close)
        )

    def _of_program(self, word: str, value: str, close: Sequence[str]) -> str:
        table = beside(__file__)["options"]
        # Several words tell whose they are: -b is of Slurm as well, -b 8 -e 1G of nccl-tests.
        given = {each.partition("=")[0] for each in self._words}
        of = Counter(
            of for of, _ in {(row["of"], n) for row in table for n in given & {*row["names"]}}
        )
        rows = [each for each in table if word in each["names"]]
        rows = [each for each in rows if each.get("where", "--help") in self._options]
        rows.sort(key=lambda row: -of[row["of"]])
        for row in rows:
            if ours := [key for key in row["ours"] if key in self._options]:
                pairs = dict(pairwise(self._words))
                largest = [pairs[name] for name in row.get("largest", ()) if name in pairs]
                step = f"write {self._written(ours[0], (largest or [value])[0])}"
                is_new = ours[0] not in close or ":" in value  # --system SITE:PARTITION
                return f" (an option of {row['of']}); {step}" if is_new else ""
        then = [f" (an option of {row['of']}); {row['then']}" for row in rows if row["then"]]
        if self._of_slurm and not then and word in sbatch_options():
            joined = f"{word}{'=' if word.startswith('--') else ' '}{value}" if value else word
            return f"; an option of Slurm is given as --sbatch '{joined}'"
        return then[0] if then else ""

    def _without_option(self, word: str, value: str, close: Sequence[str]) -> str:
        metavar = word.rpartition("-")[2].upper()
        if metavar not in self._places and not close and (others := commands_with(word)):
            return f"; busbar {' or '.join(others[:_MOST])} has it, this command has not"
        if metavar in self._places:
            return f"; {metavar} is given without an option"
        if self._places and not close and value and os.path.exists(value):
            return f"; {self._places[0]} is given without an option"
        return ""

    def _of_ours(self, word: str, value: str, close: Sequence[str]) -> str:
        name = word.lstrip("-")
        found = [*close] or [
            key
            for key, each in self._options.items()
            if each.metavar == name.rpartition("-")[2].upper()
            or value in (each.choices or ())
            or key == f"--{value}"
            or (key == "--site" and value and _is_site(value))
        ]
        begun = [key for key in self._options if key.startswith(f"--{name}")]  # -s for --site
        if asked := question(found or begun):
            return f"; {asked}"
        if name in _SITE_KEYS and "--site" in self._options:
            return f"; write it as the key {name} in site.yaml, and pass that with --site"
        known = [key for key in self._options if key not in ("--help", "--version")]
        return f"; known: {', '.join(known)}"

    def _written(self, key: str, value: str) -> str:
        """Return an option with the value if that is (almost) valid, otherwise with its form."""
        action = self._options[key]
        if key == "--site" and ":" in value and "--partition" in self._options:
            return "--site {} --partition {}".format(*map(shlex.quote, value.split(":")[:2]))
        # -N 2 is not a name, and 'osu and bw' is not the name of a check
        is_count = value.isdecimal() and action.metavar == "NODES"
        is_count = is_count or (key == "--name" and " " in value)
        if value and not is_count and (valid := next(_valid(action, value), "")):
            return f"{key} {shlex.quote(valid)}"
        known = " or ".join(shlex.quote(str(each)) for each in action.choices or ())
        return f"{key} {action.metavar or known}".strip()

    def value(self, action: argparse.Action, value: str) -> str:
        """Return the valid value that is meant: with the word after it, or in another unit."""
        key = action.option_strings[-1] if action.option_strings else ""
        both = f"{value} {dict(pairwise(self._words)).get(value, '')}"
        is_typed = (action.type or action.choices) and action.metavar not in PATHS
        if key and is_typed and accepts(action, both):
            return f"; write {key} {shlex.quote(both)}"
        parts = [each for each in re.split("[,:]", value) if accepts(action, each)]  # 8M:1G
        if parts and accepts(action, f"{parts[0]},{parts[0]}"):  # no part of a list is the list
            parts = []
        meant = next(_valid(action, value), (parts or [""])[-1])
        return f"; did you mean {f'{key} {meant}'.strip()!r}?" if meant else ""

    def place(self, word: str) -> str:
        """Return the option that takes a word: of that value, the one before it, of a site."""
        if meant := self._of_program(word, "", [word]):
            return meant
        before = self._words[: self._words.index(word)] if word in self._words else []
        options = self._options
        quoted = ""
        if last := [n for n, each in enumerate(before) if each.startswith("-")]:
            option, _, value = (
                " ".join([*before[last[-1] :], word]).replace("=", " ", 1).partition(" ")
            )
            action = next((a for a in options.values() if option in a.option_strings), None)
            is_typed = action and (action.type or action.choices) and action.metavar not in PATHS
            valid = next(_valid(action, value), "") if action and is_typed else ""
            if valid or option == "--sbatch":
                quoted = f"; write {option} {shlex.quote(valid or value)}"
            if action and action.nargs == 0 and not (quoted or os.path.exists(word)):
                quoted = f"; {option} takes no value: omit {word!r}"
        kinds = {"DIR": not os.path.isfile(word), "FILE": os.path.isfile(word)}
        of_paths = [key for key, each in options.items() if kinds.get(str(each.metavar))]
        found = [key for key, each in options.items() if word in (each.choices or ())]
        if not (found or quoted) and _is_site(word) and "--site" in options:
            found = ["--site"]
        is_name = len(word) > 2 and word.isidentifier()
        found = found or [key for key in ["--name"] if key in options and is_name]
        if not (found or quoted) and ("/" in word or "." in word):
            found = [key for key in of_paths if key == "--output"] or of_paths
        return quoted or (f"; did you mean '{found[0]} {word}'?" if found else "")

    def no_place(self, word: str) -> str:
        """Return what to do with a word that no argument takes."""
        run = f", or run busbar {word}" if word in SUMMARIES else ""
        return "" if self._places else f"; this command takes only options: omit it{run}"


def of_no_command(word: str, known: Sequence[str], group: str) -> str:
    """Return the command that is meant by a word, or that takes it: a site, or a file."""
    if os.path.isfile(word):
        return f"; write {reader(Path(word))}"
    if os.sep in word and _is_site(word):
        return f"; write busbar COMMAND --site {word}"
    rows = beside(__file__)["commands"] if not nearest(word, known) else []
    rows = [row for row in rows if word in row["names"] and row["group"] in (group, "any")]
    meant = rows[0]["then"] if rows else other_command(word, known, group)
    return f"; {meant}" if meant else ""


def _is_site(word: str) -> bool:
    with suppress(BusbarError):  # an invalid site is none to suggest
        return bool(find(word))
    return False


def _valid(action: argparse.Action, value: str) -> Iterator[str]:
    """Yield a value and other ways to write it, as far as the option accepts them."""
    nearly = [value, *([f"{value}m", f"{value}%"] if value[-1:].isdigit() else ())]
    nearly += [value.replace(",", "."), value.strip("'\" "), os.path.splitext(value)[0]]
    nearly += [re.sub("[ ,;]+", ",", value), value.lower(), value.upper(), *_dates(value.lower())]
    nearly += [re.sub("(?i)/s$|ps$", "", value)]
    if (rate := _RATE.fullmatch(value)) and action.metavar == "GBPS":
        nearly.append(f"{float(rate['count']) / (8 if rate['bits'] else 1):g}")
    if total := duration(value.lower()):
        names = f"{action.metavar} {action.option_strings}"  # H ['--max-hours']
        nearly += [
            f"{total / unit:g}"
            for letter, unit in SECONDS.items()
            if re.search(rf"(?:^|-){letter}[a-z]*[ ']", names, re.IGNORECASE)
        ]
    yield from (each for each in nearly if accepts(action, each))


def _dates(text: str) -> Iterator[str]:
    """Yield the ISO 8601 form of a day: 31/01/2026, 31.1.2026, 7d, 2 weeks ago, last week."""
    if day := re.fullmatch(r"(?P<day>\d{1,2})[/. ](?P<month>\d{1,2})[/. ](?P<year>\d{4})", text):
        yield "{year}-{month:0>2}-{day:0>2}".format(**day.groupdict())
    yield re.sub(r"[/.]", "-", text)
    if past := re.fullmatch(r"(?P<count>last|\d{1,3}) ?(?P<unit>d|w|m)[a-z]*(?: ago)?", text):
        days = {"d": 1, "w": 7, "m": 30}[past["unit"]]
        days *= 1 if past["count"] == "last" else int(past["count"])
        yield (datetime.now(UTC).date() - timedelta(days)).isoformat()
