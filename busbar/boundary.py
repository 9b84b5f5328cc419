# SPDX-License-Identifier: MIT
"""What strings and files of others may hold before a shell, ReFrame or the file system gets them.

Values that leave for other places pass one module each: SQL through parameters
(`busbar.history.store`), HTML through the templates (`busbar.report.page`), metrics through
`busbar.report.prometheus`, the terminal through `busbar.terminal`.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from busbar.errors import BusbarError, file_error

# ReFrame writes paths into job scripts without quotes. A colon separates the directories of a
# search path and the sides of a bind mount, a comma separates bind mounts.
_PATH = re.compile(r"[\w@%+=./~-]*")
_REFERENCE = re.compile(r"\w[\w@%+=:./~-]*")
# ReFrame expands values with the first two, on the host that submits; a line of its own in a job
# script is a command.
_COMMAND = re.compile(r"\$\(|`|[\x00-\x1f\x7f]")


def refuse_command(text: str) -> str:
    """Return the text; raise ``ValueError`` if ReFrame or a job script would execute a part."""
    if found := _COMMAND.search(text):
        raise ValueError(
            f"{text[:60]!a} has {found[0]!a}, which a job script would execute;"
            " write one line without $( and backquotes"
        )
    return text


def texts(value: object) -> Iterator[str]:
    """Yield the strings of nested lists and mappings, with the keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from texts(key)
            yield from texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


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


def output_directory(path: Path, where: str) -> Path:
    """Make a directory that a run writes to, with its parents; return it without links.

    Raises ``BusbarError`` if job scripts cannot name it, if another user can lead what is written
    there to other files, and if it cannot be made.
    """
    refuse_unsafe(path.resolve(), where)
    refuse_foreign(path, where)
    with file_error("cannot be made", path, f"choose another {where}"):
        path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def refuse_foreign(directory: Path, where: str) -> None:
    """Raise ``BusbarError`` for a directory of another user, or one that anyone can write to.

    Its owner can lead what is written there to another file, by a link. One that does not exist,
    and one of root, are accepted.
    """
    refuse_links(directory, where)
    if who := _writer(directory, {0, os.geteuid()}):
        raise BusbarError(
            f"{who} {directory}, and could lead the files that are written there to others",
            where=where,
            hint="choose a directory that only you can write to",
        )


def refuse_links(path: Path, where: str) -> None:
    """Raise ``BusbarError`` if a link on the way to a path is another user's."""
    absolute = Path(os.path.abspath(path))
    for each in (absolute, *absolute.parents):
        with suppress(OSError):
            owner = each.lstat().st_uid
            if each.is_symlink() and owner not in (0, os.geteuid()):
                raise BusbarError(
                    f"{each} is a link of {_name(owner)}, who could lead it to other files",
                    where=where,
                    hint="name the directory itself",
                )


def refuse_foreign_code(file: Path) -> None:
    """Raise ``BusbarError`` for a file to execute that another user can change.

    The caller, root, and the owner of this installation are trusted.
    """
    trusted = {0, os.geteuid(), Path(__file__).stat().st_uid}
    for path in (file, file.parent):
        if who := _writer(path, trusted):
            raise BusbarError(
                f"{who} {path}, and {file.name} is executed",
                where=str(file),
                hint="let root, the owner of Busbar or you own both, writable for nobody else",
            )


def _writer(path: Path, trusted: set[int]) -> str:
    """Return who besides the trusted users can write to a path, in words; empty if nobody."""
    try:
        found = path.stat()
    except OSError:
        return ""
    if found.st_uid not in trusted:
        return f"{_name(found.st_uid)} owns"
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    return "anyone can write to" if found.st_mode & stat.S_IWOTH and not sticky else ""


def _name(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def replace_file(path: Path, text: str, *, public: bool = False) -> None:
    """Write a whole file or none, without following a link that has its name.

    ``public`` makes it readable for all, whatever the umask. Raises ``BusbarError`` for a link of
    another user on the way, else ``OSError``.
    """
    refuse_links(path.parent, str(path))
    umask = os.umask(0o077)
    os.umask(umask)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, 0o644 if public else 0o666 & ~umask)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
