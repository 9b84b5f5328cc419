# SPDX-License-Identifier: MIT
"""What a user meant who typed a wrong command or variable, or gave a file of another command."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

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


def foreign_option(word: str) -> str:
    """Return whose option a word is, and what does the same here; empty if it is unknown."""
    name = word.partition("=")[0]
    rows = [each for each in beside(__file__)["options"] if name in each["names"]]
    return "".join(f"; {name} is an option of {each['of']}: {each['then']}" for each in rows)


def unknown_variable(options: Container[str]) -> str:
    """Return what is wrong with a variable named nearly as one of ours, or as an option."""
    ours = [name for name in os.environ if name.startswith(_OURS)]
    if not ours:
        return ""
    groups = load_yaml(Path(__file__).with_name("variables.yaml")).values()
    known = {name.removeprefix(_OURS) for group in groups for name in group if _OURS in name}
    for name in ours:
        word = name.removeprefix(_OURS)
        meant = f"{_OURS}{near(word, known)}".removesuffix(_OURS)
        if word.lower() in options:
            meant = meant or f"--{word.lower()}".replace("_", "-")
        if word not in known and meant:
            return f"{name}: unknown variable, ignored; did you mean {meant!r}?"
    return ""


def of_file(error: BusbarError, command: str, words: Sequence[str]) -> BusbarError:
    """Return an error that a file of the command line has caused, with what the file really is.

    That is: another file if it does not exist, one that the user cannot read, one of another
    command, or the directory of the right one.
    """
    for before, word in zip(["", *words], words, strict=False):
        option, _, name = word.rstrip("/").rpartition("=")
        is_option = not name or name.startswith("--")
        if is_option or not re.match(re.escape(name) + r"(?::|$)", error.where):
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
            place = f"{command} {option}".strip()
            whole = error.where.rstrip("/") == name  # not a file inside an image
            if whole and path.is_dir() and "regular file" in error.what:
                inside = (f for f in sorted(path.glob("*.json*")) if place in _kind(f)["accepted"])
                hint = f"give a file of it{''.join(f', such as {f}' for f in [*inside][:1])}"
                return BusbarError("is a directory", where=error.where, hint=hint)
            return _of_kind(path, place) or error
        return BusbarError(error.what, where=error.where, hint=hint, others=error.others)
    return error


def _of_kind(path: Path, place: str) -> BusbarError | None:
    """Return what a file is, and what reads it; None if it is unknown or accepted here."""
    kinds = beside(__file__)["files"]
    wanted = " or ".join(each["is"] for each in kinds if place in each["accepted"])
    kind = _kind(path)
    if not kind["is"] or place in kind["accepted"] or not wanted:
        return None
    read = f", for {kind['read'].format(path)}" if kind["read"] else ""
    return BusbarError(f"is {kind['is']}{read}", where=str(path), hint=f"give {wanted}")


def _kind(path: Path) -> dict[str, Any]:
    """Return the row of ``files`` that describes a file; one without words if it is unknown."""
    head = None
    with suppress(OSError), open(path, "rb", opener=regular) as stream:
        head = stream.read(_HEAD).partition(b"\0")[0].decode(errors="replace")
    rows = beside(__file__)["files"] if head is not None else []
    known = (each for each in rows if re.search(each["pattern"], head or "", re.M))
    return next(known, {"is": "", "accepted": []})
