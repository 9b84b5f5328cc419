# SPDX-License-Identifier: MIT
"""What a user meant who typed a wrong command or variable, or gave a file of another command."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from busbar import commands
from busbar.boundary import regular
from busbar.data import CHECKOUT
from busbar.errors import BusbarError, near
from busbar.parse.tables import beside, load_yaml

_HEAD = 4096
_OURS = "BUSBAR_"


def other_command(word: str, known: Sequence[str]) -> str:
    """Return the commands that a word may mean, as a question; empty if there are none.

    ``known`` are those where it was typed.
    """
    names: dict[str, list[str]] = {name: [name] for name in commands.SUMMARIES}
    for each in load_yaml(Path(commands.__file__).with_name("options.yaml")):
        if " " in each:
            names.setdefault(each.split()[-1], []).append(each)
    if CHECKOUT:
        for target in re.findall(
            r"^(?P<target>[a-z]\S*):", (CHECKOUT / "Makefile").read_text(), re.M
        ):
            names.setdefault(target, [f"make {target}"])
    names |= {word: [command] for word, command in beside(__file__)["commands"].items()}
    meant = names.get(word, [])
    if not meant and not near(word, known):
        meant = names.get(near(word, names), [])
    quoted = (repr(each if each.startswith("make") else f"busbar {each}") for each in meant)
    return f"did you mean {' or '.join(quoted)}?" if meant else ""


def unknown_variable() -> str:
    """Return what is wrong with a variable whose name is nearly one of ours."""
    ours = [name for name in os.environ if name.startswith(_OURS)]
    if not ours:
        return ""
    groups = load_yaml(Path(__file__).with_name("variables.yaml")).values()
    known = {name.removeprefix(_OURS) for group in groups for name in group if _OURS in name}
    for name in ours:
        word = name.removeprefix(_OURS)
        if word not in known and (meant := near(word, known)):
            return f"{name}: unknown variable, ignored; did you mean {_OURS + meant!r}?"
    return ""


def of_file(error: BusbarError, command: str, words: Sequence[str]) -> BusbarError:
    """Return an error that a file of the command line has caused, with what the file really is.

    That is: another file if it does not exist, one that the user cannot read, or one of another
    command.
    """
    for before, word in zip(["", *words], words, strict=False):
        option, _, name = word.rpartition("=")
        if not name or not re.match(re.escape(name) + r"(?::|$)", error.where):
            continue
        option = option or (before if before.startswith("-") else "")
        path, hint = Path(name), error.hint
        if not os.path.exists(path):
            with suppress(OSError):
                close = get_close_matches(path.name, os.listdir(path.parent), n=1, cutoff=0.8)
                hint = f"did you mean {str(path.with_name(close[0]))!r}?" if close else hint
        elif not os.access(path, os.R_OK):
            hint = "its permissions do not let you read it: ls -l shows them, chmod changes them"
        else:
            return _of_kind(path, f"{command} {option}".strip()) or error
        return BusbarError(error.what, where=error.where, hint=hint, others=error.others)
    return error


def _of_kind(path: Path, place: str) -> BusbarError | None:
    """Return what a file is, and what reads it; None if it is unknown or accepted here."""
    try:
        with open(path, "rb", opener=regular) as stream:
            head = stream.read(_HEAD).partition(b"\0")[0].decode(errors="replace")
    except OSError:
        return None
    kinds = beside(__file__)["files"]
    kind = next((each for each in kinds if re.search(each["pattern"], head, re.M)), None)
    wanted = " or ".join(each["is"] for each in kinds if place in each["accepted"])
    if kind is None or place in kind["accepted"] or not wanted:
        return None
    what = f"is {kind['is']}, for {kind['read'].format(path)}"
    return BusbarError(what, where=str(path), hint=f"give {wanted}")
