# SPDX-License-Identifier: MIT
"""Hints for wrong commands and variables, and for files of another command."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from busbar import commands
from busbar.boundary import regular
from busbar.errors import BusbarError, near
from busbar.parse.tables import beside, load_yaml

_HEAD = 4096
_OURS = "BUSBAR_"


def other_command(word: str, known: Sequence[str]) -> str:
    """Return the commands that a word may mean, as a question; may be empty.

    ``known`` are the commands that are valid in its place.
    """
    names: dict[str, list[str]] = {name: [name] for name in commands.SUMMARIES}
    for each in _options():
        if " " in each:
            names.setdefault(each.split()[-1], []).append(each)
    usual = beside(__file__)["commands"].get(word, word)
    if usual.startswith("make") and "check" not in known:  # no target replaces a subcommand
        return ""
    if usual != word and usual in known:
        return f"did you mean {usual!r}?"
    meant = names.get(usual, [usual] * (usual != word))
    if not meant and not near(word, known):
        meant = names.get(near(word, names), [])
    quoted = (repr(each if each.startswith("make") else f"busbar {each}") for each in meant)
    return f"did you mean {' or '.join(quoted)}?" if meant else ""


def _options() -> dict[str, Any]:
    """Return the options of each command, as they are declared."""
    return cast("dict[str, Any]", load_yaml(Path(commands.__file__).with_name("options.yaml")))


def ignored_variable(command: str, options: Container[str]) -> str:
    """Return which BUSBAR_ variable has no effect, and its replacement; empty if there is none."""
    ours = [name for name in os.environ if name.startswith(_OURS)]
    groups = load_yaml(Path(__file__).with_name("variables.yaml")) if ours else {}
    known = {name.removeprefix(_OURS) for group in groups.values() for name in group}
    for name in ours:
        word = name.removeprefix(_OURS)
        key = f"--{word.lower()}".replace("_", "-") if word.lower() in options else ""
        if command == "check" and key and word in known:
            return f"{name}: only plain ReFrame reads it, ignored; write {key} {os.environ[name]}"
        close = near(word, known)
        meant = [*[f"{key} {os.environ[name]}"] * bool(key), *[f"{_OURS}{close}"] * bool(close)]
        if word not in known and meant:
            return f"{name}: unknown variable, ignored; did you mean {' or '.join(meant)}?"
    return ""


def of_file(error: BusbarError, command: str, words: Sequence[str]) -> BusbarError:
    """Return the error of a file on the command line, with a hint on what the file is.

    The file may be misspelled, not readable by the user, for another command, or the directory of
    the right file.
    """
    for before, word in zip(["", *words], words, strict=False):
        option, _, name = word.rstrip("/").rpartition("=")
        is_option = not name or name.startswith("-")
        if is_option or not re.match(re.escape(name) + r"(?::|$)", error.where):
            continue
        option = option or (before if before.startswith("-") else "")
        path, hint = Path(name), error.hint
        if not os.path.exists(path):
            with suppress(OSError):  # no directory: nothing is alike
                close = get_close_matches(path.name, os.listdir(path.parent), n=1, cutoff=0.8)
                hint = f"did you mean {str(path.with_name(close[0]))!r}?" if close else hint
            hint = f"a running job: busbar job {name}" if name.isdecimal() else hint
            if not (option or path.suffix) and "--output" in str(_options().get(command)):
                hint += f"; if results go there, write --output {name}"
        elif not os.access(path, os.R_OK):
            hint = "you do not have permission to read it: see ls -l and chmod"
        else:
            place = f"{command} {option}".strip()
            whole = error.where.rstrip("/") == name  # not for files inside an image
            if whole and path.is_dir() and "regular file" in error.what:
                inside = (f for f in sorted(path.glob("*.json*")) if place in _kind(f)["accepted"])
                hint = f"pass a file in it{''.join(f', such as {f}' for f in [*inside][:1])}"
                return BusbarError("is a directory", where=error.where, hint=hint)
            return _of_kind(path, place) or error
        return BusbarError(error.what, where=error.where, hint=hint, others=error.others)
    return error


def reader(path: Path) -> str:
    """Return the command that reads a file of this kind; explain if it is unknown."""
    return _kind(path).get("read", "").format(path) or f"busbar explain {path}"


def _of_kind(path: Path, place: str) -> BusbarError | None:
    """Return what a file is and which command reads it; None if unknown or accepted here."""
    kinds = beside(__file__)["files"]
    wanted = " or ".join(each["is"] for each in kinds if place in each["accepted"])
    kind = _kind(path)
    if not kind["is"] or place in kind["accepted"] or not wanted:
        return None
    read = f", for {kind['read'].format(path)}" if kind["read"] else ""
    return BusbarError(f"is {kind['is']}{read}", where=str(path), hint=f"pass {wanted}")


def _kind(path: Path) -> dict[str, Any]:
    """Return the row of ``files`` that describes a file; an empty row if unknown."""
    head = None
    with suppress(OSError), open(path, "rb", opener=regular) as stream:
        head = stream.read(_HEAD).partition(b"\0")[0].decode(errors="replace")
    rows = beside(__file__)["files"] if head is not None else []
    known = (each for each in rows if re.search(each["pattern"], head or "", re.M))
    return next(known, {"is": "", "accepted": []})
