# SPDX-License-Identifier: MIT
"""Where text of others comes in and goes out: one function for each place that can misread it.

| place | what guards it |
|---|---|
| ReFrame and its job scripts | `refuse_command`; `refuse_unsafe` for paths, which get no quotes |
| words of a shell, options of Slurm | `shlex`, after `refuse_command` |
| the reason of a drained node | `slurm_reason` |
| the terminal, mail, JUnit and one line of a log | `visible`, `one_line` |
| metrics | `metric_label`; `busbar.report.prometheus` has the client's own |
| HTML and SVG | the templates of `busbar.report.page`, which escape |
| SQL | parameters; names of tables and columns are constants |
| names of files | `refuse_unsafe`; those in reports are made of letters and digits |

What comes in: `read_text` for files, `busbar.parse.numbers` for numbers and JSON.
`refuse_foreign` guards directories to write to, `refuse_foreign_code` and `refuse_shared` what is
executed.
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


# Printable by Unicode's categories, and still without a glyph: joiners, fillers and selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
MOST_BYTES = 2**20
_ALL_USERS = ["0", str(2**32 - 1)]
"""The map of a process whose users are those of the host."""


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
    and one of root, are accepted. For root, the directories above it count too: who can write to
    one of them can put another directory there during a run.
    """
    refuse_links(directory, where)
    for path in (directory, *(directory.resolve().parents if _is_root() else ())):
        if who := _writer(path, {0, os.geteuid()}):
            raise BusbarError(
                f"{who} {path}, and could lead the files that are written there to others",
                where=where,
                hint="choose a directory that only you can write to",
            )


def refuse_foreign_to_root(directory: Path, where: str) -> None:
    """As ``refuse_foreign``, but only for root: others share such a directory on purpose."""
    if _is_root():
        refuse_foreign(directory, where)


def refuse_foreign_temporary() -> None:
    """Raise ``BusbarError`` for temporary files of root in a directory of another user.

    ``sudo -E`` keeps TMPDIR, and some of these files are executed.
    """
    with suppress(OSError):  # a full disk: the command that needs it says so
        if _is_root():
            refuse_shared(Path(tempfile.gettempdir()), "TMPDIR")


def _is_root() -> bool:
    """Whether this is root of the host: in a user namespace, owners can seem to be nobody."""
    return not os.geteuid() and Path("/proc/self/uid_map").read_text().split()[1:] == _ALL_USERS


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


def refuse_shared(directory: Path, where: str) -> Path:
    """Return a directory without links; raise ``BusbarError`` if another user can change it.

    Neither it nor a directory above it may be writable for others than the caller and root.
    """
    refuse_links(directory, where)
    real = directory.resolve()
    for path in (real, *real.parents):
        if who := _writer(path, {0, os.geteuid()}, alone=True):
            raise BusbarError(
                f"{who} {path}, and what is in {real} is executed",
                where=where,
                hint="name a directory that only you can write to",
            )
    return real


def refuse_foreign_code(file: Path) -> None:
    """Raise ``BusbarError`` for a file to execute that another user can change.

    The caller, root, and the owner of this installation are trusted. For root, all directories
    above it count: who can write to one of them can put another file there.
    """
    here = next(path for path in Path(__file__).parents if path.exists())  # of a program in a zip
    trusted = {0, os.geteuid(), here.stat().st_uid}
    refuse_links(file, str(file))
    ways = (file.absolute(), file.resolve())
    above = [path for way in ways for path in (way.parents if _is_root() else (way.parent,))]
    for path in dict.fromkeys((*ways, *above)):
        if who := _writer(path, trusted, alone=True):
            raise BusbarError(
                f"{who} {path}, and {file.name} is executed",
                where=str(file),
                hint="let root, the owner of Busbar or you own both, writable for nobody else",
            )


def _writer(path: Path, trusted: set[int], *, alone: bool = False) -> str:
    """Return who besides the trusted users can write to a path, in words; empty if nobody.

    With ``alone``, a group with other members counts.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    if found.st_uid not in trusted:
        return f"{_name(found.st_uid)} owns"
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    # The group of a user with the same number has no other member.
    if alone and found.st_mode & stat.S_IWGRP and found.st_gid not in (0, found.st_uid):
        return f"the group {found.st_gid} can write to"
    return "anyone can write to" if found.st_mode & stat.S_IWOTH and not sticky else ""


def _name(uid: int) -> str:
    with suppress(KeyError):  # an account without a name, as in containers
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def replace_file(path: Path, content: str | bytes, *, public: bool = False) -> None:
    """Write a whole file or none, without following a link that has its name.

    ``public`` makes it readable for all, whatever the umask. Raises ``BusbarError`` for a link of
    another user on the way, else ``OSError``.
    """
    refuse_links(path.parent, str(path))
    umask = os.umask(0o077)
    os.umask(umask)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            os.fchmod(descriptor, 0o644 if public else 0o666 & ~umask)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:  # an interruption, too, must not leave a part of it
        os.unlink(name)
        raise


def visible(text: str, keep: str = "\t\n") -> str:
    r"""Replace what a terminal obeys or does not show by escapes such as ``\x1b`` and ``\u202e``.

    That is all that Unicode does not call printable (controls, formats such as those of text
    direction, separators other than the space, lone surrogates, unassigned characters), except
    ``keep``.
    """
    plain = text.translate(dict.fromkeys(map(ord, keep)))
    if plain.isprintable() and (plain.isascii() or not _INVISIBLE.search(plain)):
        return text
    return "".join(
        each
        if each in keep or (each.isprintable() and not _INVISIBLE.match(each))
        else "\\x0d"
        if each == "\r"
        else each.encode("unicode_escape").decode()
        for each in text
    )


def one_line(text: str) -> str:
    """Return ``text`` as a part of one line: a line feed is an escape, too."""
    return visible(text, keep="\t")


def metric_label(text: str) -> str:
    """Return the value of a label as Prometheus' text format writes it."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def slurm_reason(text: str) -> str:
    """Return text that no shell, table or parser of Slurm takes for something else."""
    return " ".join(re.sub(r"[^ !#%&()*+,./0-9:;<=>?@A-Z\[\]_a-z{}~-]", "?", text).split())


def read_text(
    path: Path, most: int = MOST_BYTES, *, errors: str = "strict", own: bool = False
) -> str:
    """Return the text of a file; raise ``OSError`` for anything but a file of ``most`` bytes.

    ``errors`` is as for ``bytes.decode``. With ``own``, the file must be the caller's or root's.
    """
    with open(path, "rb", opener=regular) as stream:
        owner = os.fstat(stream.fileno()).st_uid
        if own and owner not in (0, os.geteuid()):
            raise OSError(0, f"belongs to {_name(owner)}")
        data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(0, f"has more than {most:,} bytes")
    return data.decode("utf-8", errors)


def regular(path: str, flags: int) -> int:
    """Open a regular file, as ``opener`` of ``open``: a pipe blocks, a device may never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor
