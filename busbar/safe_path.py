# SPDX-License-Identifier: MIT
"""Refuse names that scripts read as something else, and directories where others can interfere."""

from __future__ import annotations

import os
import pwd
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from busbar.errors import BusbarError

# ReFrame writes paths into job scripts without quotes. A colon separates the directories of a
# search path and the sides of a bind mount, a comma separates bind mounts.
_PATH = re.compile(r"[\w@%+=./~-]*")
_REFERENCE = re.compile(r"\w[\w@%+=:./~-]*")


def refuse_unsafe(path: str | Path, where: str) -> None:
    """Raise ``BusbarError`` for a path with a character other than letters, digits, _@%+=./~-."""
    _refuse(_PATH, str(path), where)


def refuse_unsafe_reference(name: str, where: str) -> None:
    """Raise ``BusbarError`` for the name of an image that is not one word; colons are allowed."""
    _refuse(_REFERENCE, name, where)


def _refuse(allowed: re.Pattern[str], text: str, where: str) -> None:
    found = allowed.match(text)
    end = found.end() if found else 0
    if end < len(text) or not text:
        what = f"{text!a} has the character {text[end]!a}" if text else "is empty"
        raise BusbarError(
            f"{what}, which job scripts cannot contain",
            where=where,
            hint="use letters, digits and _ @ % + = . / ~ -",
        )


def refuse_foreign(directory: Path, where: str) -> None:
    """Raise ``BusbarError`` for a directory of another user, or one that anyone can write to.

    Its owner can lead what is written there to another file, by a link. One that does not exist,
    and one of root, are accepted.
    """
    try:
        found = directory.stat()
    except OSError:
        return
    hint = "choose a directory that only you can write to"
    if found.st_uid not in (0, os.geteuid()):
        owner = str(found.st_uid)
        with suppress(KeyError):
            owner = pwd.getpwuid(found.st_uid).pw_name
        what = (
            f"{directory} belongs to {owner}, who could lead the files that are written to others"
        )
        raise BusbarError(what, where=where, hint=hint)
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        what = f"anyone can write to {directory}, and lead the files that are written to others"
        raise BusbarError(what, where=where, hint=hint)


def replace_file(path: Path, text: str) -> None:
    """Write a whole file or none, without following a link that has its name.

    Raises ``BusbarError`` as `refuse_foreign` for its directory, else ``OSError``.
    """
    refuse_foreign(path.parent, str(path))
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
