# SPDX-License-Identifier: MIT
"""Refuse names that shell scripts, search paths or options would read as something else."""

from __future__ import annotations

import re
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
