# SPDX-License-Identifier: MIT
"""Hints for wrong commands and variables, and for files of another command."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, cast

from busbar import commands
from busbar.boundary import regular
from busbar.errors import BusbarError
from busbar.near import misspelled, nearest, question, synonyms
from busbar.parse.tables import beside, load_yaml

_HEAD = 4096
_OPTIONAL = " --(output DIR|site NAME)"
_SHORT = 2
_LENIENT = ("explain", "site lint", "site show")
"""Commands that would make sense of a file for another command, or report it as a finding."""
_OURS = "BUSBAR_"


def other_command(word: str, known: Sequence[str], group: str) -> str:
    """Return the commands or options that a word may mean, as a question; may be empty.

    ``known`` are the valid commands in its place, the commands of ``group``.
    """
    declared = _options()
    names = {each.rpartition(" ")[2]: each for each in reversed(declared)}
    if here := question(nearest(word, known)):
        return here
    typed = word.casefold().replace("-", "")
    whole = [each for each, words in synonyms().items() if " " in each and typed in words]
    if group:  # no target of make replaces a subcommand
        whole = [each for each in whole if each.startswith((group, "COMMAND"))]
    close = [misspelled(word, commands.SUMMARIES)] if group else nearest(word, names)
    others = [names.get(each, each) for each in close if each]
    options = [
        f"{each} {spec.rpartition(', ')[2]}"
        for each, entries in declared.items()
        if each.split()[0] == group or (not group and len(word) > _SHORT)
        for spec in _specs(entries)
        if nearest(word, re.findall(r"--[\w-]+", spec))
    ]
    options.sort(key=lambda each: f"--{word} " not in f"{each} ")
    meant = whole or (options or others if group else others or options)
    return question(each if each.startswith("make") else f"busbar {each}" for each in meant[:1])


def commands_with(option: str) -> list[str]:
    """Return the commands that have an option, as ``--json``."""
    entries = ((each, _specs(entries)) for each, entries in _options().items() if each != "shared")
    return [each for each, specs in entries if option in re.findall(r"--[\w-]+", str(specs))]


def _specs(entry: Any) -> list[str]:
    """Return the options of a command with their values, as ``options.yaml`` declares them."""
    if isinstance(entry, list):
        return [spec for each in entry for spec in _specs(each)]
    if isinstance(entry, str):
        return _specs(_options()["shared"].get(entry, []))
    (first, text), *_ = entry.items()
    return _specs(text) if isinstance(text, list) else [first] * first.startswith("-")


@cache
def _options() -> dict[str, Any]:
    """Return the options of each command, as they are declared."""
    return cast("dict[str, Any]", load_yaml(Path(commands.__file__).with_name("options.yaml")))


def ignored_variable(command: str, options: Container[str]) -> str:
    """Return a BUSBAR_ variable without effect and its replacement; empty if there is none."""
    ours = [name for name in os.environ if name.startswith(_OURS)]
    groups = load_yaml(Path(__file__).with_name("variables.yaml")) if ours else {}
    known = {name.removeprefix(_OURS) for group in groups.values() for name in group}
    for name in ours:
        word = name.removeprefix(_OURS)
        key = f"--{word.lower()}".replace("_", "-") if word.lower() in options else ""
        if command == "check" and key and word in known:
            return f"{name}: only plain ReFrame reads it, ignored; write {key} {os.environ[name]}"
        meant = [f"{key} {os.environ[name]}"] * bool(key)
        like = nearest(word, known) or [n for n in known if n.startswith(f"{word.split('_')[0]}_")]
        meant += [f"{_OURS}{each}" for each in sorted(like)[:2]]
        if word not in known and meant:
            return f"{name}: unknown variable, ignored; did you mean {' or '.join(meant)}?"
    return ""


def refuse_other_file(command: str, words: Sequence[str]) -> None:
    """Raise ``BusbarError`` for a program, and for the file of another command instead of a site.

    A log reader finds something even in a program, and errors of a site are findings.
    """
    for name, option in _names(words) if command in _LENIENT else ():
        if not os.path.isfile(name):
            continue
        error = _of_kind(Path(name), f"{command} {option}".strip())
        if error and (command != "explain" or _is_certain(Path(name))):
            raise error


def _is_certain(path: Path) -> bool:
    """Return whether the name of a file, or the schema in it, says what it is."""
    kind = _kind(path)
    return "name" in kind or '"busbar-' in kind.get("pattern", "")


def _names(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a command line that may be files, each with its option if it has one."""
    for before, word in zip(["", *words], words, strict=False):
        option, _, name = word.rstrip("/").rpartition("=")
        if name and not name.startswith("-"):
            yield name, option or (before if before.startswith("-") else "")


def of_file(error: BusbarError, command: str, words: Sequence[str]) -> BusbarError:
    """Return the error of a file on the command line, with a hint on what the file is.

    The file may be misspelled, not readable by the user, for another command, or the directory of
    the right file.
    """
    for name, option in _names(words):
        path, hint = Path(name), error.hint
        if not re.match(re.escape(name) + r"(?::|$)", error.where):
            continue
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
            if whole and path.is_dir():
                inside = [f for f in sorted(path.glob("*.json*")) if place in _kind(f)["accepted"]]
                certain = filter(_is_certain, sorted(path.glob("*.json*")))
                others = (_of_kind(f, place) for f in certain)
                if other := next(filter(None, others), None) if not inside else None:
                    return other
                if "regular file" in error.what:
                    hint = f"pass a file in it{''.join(f', such as {f}' for f in inside[:1])}"
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
    accepted = [each for each in kinds if place in each["accepted"]]
    read = f"busbar {place} {{}}"
    usual = [each for each in accepted if re.sub(_OPTIONAL, "", each["read"]) == read]
    wanted = " or ".join(each["is"] for each in usual or accepted)
    kind = _kind(path)
    if not kind["is"] or place in kind["accepted"] or not wanted:
        return None
    reader = f", for {kind['read'].format(path)}" if kind["read"] else ""
    return BusbarError(f"is {kind['is']}{reader}", where=str(path), hint=f"pass {wanted}")


def _kind(path: Path) -> dict[str, Any]:
    """Return the row of ``files`` that describes a file; an empty row if unknown."""
    head = None
    with suppress(OSError), open(path, "rb", opener=regular) as stream:
        head = stream.read(_HEAD).partition(b"\0")[0].decode(errors="replace")
    rows = beside(__file__)["files"] if head is not None else []
    known = (
        each
        for each in rows
        if re.search(each["pattern"], head or "", re.M)
        and re.search(each.get("name", ""), path.name)
    )
    return next(known, {"is": "", "accepted": []})
