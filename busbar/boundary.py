# SPDX-License-Identifier: MIT
"""Untrusted text, in and out: one function for each place that could misinterpret it.

| place | guard |
|---|---|
| ReFrame and its job scripts | `refuse_command`; `refuse_unsafe` for paths, which are not quoted |
| shell words, Slurm options | `shlex`, after `refuse_command` |
| the reason for draining a node | `slurm_reason` |
| terminal, mail, JUnit, single log lines | `visible`, `one_line` |
| metrics | `metric_label`; `busbar.report.prometheus` uses the client library |
| HTML and SVG | the templates of `busbar.report.page`, which escape |
| SQL | parameters; table and column names are constants |
| file names | `refuse_unsafe`; names in reports consist of letters and digits |

Input: `read_text` for files, `busbar.parse.numbers` for numbers and JSON. `refuse_foreign` guards
output directories; `refuse_foreign_code` and `refuse_shared` guard executed files.
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

# ReFrame writes paths into job scripts without quotes. Colons separate the directories of a search
# path and the sides of a bind mount; commas separate bind mounts.
_PATH = re.compile(r"[\w@%+=./~-]*")
_REFERENCE = re.compile(r"\w[\w@%+=:./~-]*")
# ReFrame expands the first two on the submitting host; a new line in a job script is a command.
_COMMAND = re.compile(r"\$\(|`|[\x00-\x1f\x7f]")


# Printable according to Unicode, but without a glyph: joiners, fillers and selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_NODE = re.compile(r"(?!all$)\w[\w.-]*", re.ASCII | re.IGNORECASE)
"""Slurm takes other names for lists, and ALL for every node."""
MOST_BYTES = 2**20
_ALL_USERS = ["0", str(2**32 - 1)]
"""The UID map of a process in the host's user namespace."""


def refuse_command(text: str) -> str:
    """Return the text; raise ``ValueError`` if ReFrame or a job script would execute parts."""
    if found := _COMMAND.search(text):
        raise ValueError(
            f"{text[:60]!a} contains {found[0]!a}, which a job script would "
            "execute; use one line without $( and backquotes"
        )
    return text


def is_node(name: str) -> bool:
    """Return whether Slurm takes a text for the name of one node."""
    return _NODE.fullmatch(name) is not None


def texts(value: object) -> Iterator[str]:
    """Yield the strings in nested lists and mappings, including the keys."""
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
    """Raise ``BusbarError`` unless a path consists of letters, digits and _@%+=./~-."""
    _refuse(_PATH, str(path), where)


def refuse_unsafe_reference(name: str, where: str) -> None:
    """Raise ``BusbarError`` for an image name that is not a single word; colons are allowed."""
    _refuse(_REFERENCE, name, where)


def _refuse(allowed: re.Pattern[str], text: str, where: str) -> None:
    found = allowed.match(text)
    end = found.end() if found else 0
    if end < len(text) or not text:
        what = f"{text!a} has the character {text[end]!a}" if text else "is empty"
        what = f"{what}, which job scripts cannot contain"
        hint = "use only letters, digits and _ @ % + = . / ~ -"
        raise BusbarError(what, where=where, hint=hint)


def output_directory(path: Path, where: str) -> Path:
    """Create a run's output directory, with parents; return it with links resolved.

    Raises ``BusbarError`` if job scripts cannot contain its name, if another user could redirect
    files written to it, or if it cannot be created.
    """
    refuse_unsafe(path.resolve(), where)
    refuse_foreign(path, where)
    with file_error("cannot be created", path, f"choose another {where}"):
        path.mkdir(parents=True, exist_ok=True)
    refuse_foreign(path, where)  # another user may have made it first
    return path.resolve()


def refuse_foreign(directory: Path, where: str) -> None:
    """Raise ``BusbarError`` for a directory that belongs to another user or is world-writable.

    Its owner could redirect files written to it with a link. Missing directories and directories
    of root are accepted. For root, parent directories and members of a group are checked too: a
    user who can write to a parent could replace the directory during a run.
    """
    refuse_links(directory, where)
    is_root = _is_root()
    for path in (directory, *(directory.resolve().parents if is_root else ())):
        if who := _writer(path, {0, os.geteuid()}, alone=is_root):
            what = f"{who} {path}, and could redirect files that are written there"
            hint = "choose a directory that only you can write to"
            raise BusbarError(what, where=where, hint=hint)


def refuse_foreign_to_root(directory: Path, where: str) -> None:
    """Like ``refuse_foreign`` for root; users share directories on purpose: only links matter."""
    (refuse_foreign if _is_root() else refuse_links)(directory, where)


def refuse_foreign_temporary() -> None:
    """Raise ``BusbarError`` if root's temporary files would go to another user's directory.

    ``sudo -E`` keeps TMPDIR, and some of these files are executed.
    """
    with suppress(OSError):  # full disk: the command that needs the space reports it
        if _is_root():
            refuse_shared(Path(tempfile.gettempdir()), "TMPDIR")


def _is_root() -> bool:
    """Whether the user is root on the host: in a user namespace, owners can appear as nobody."""
    return not os.geteuid() and Path("/proc/self/uid_map").read_text().split()[1:] == _ALL_USERS


def refuse_links(path: Path, where: str) -> None:
    """Raise ``BusbarError`` if a link in a path belongs to another user."""
    absolute = Path(os.path.abspath(path))
    for each in (absolute, *absolute.parents):
        with suppress(OSError):  # a missing part cannot redirect anything
            owner = each.lstat().st_uid
            if each.is_symlink() and owner not in (0, os.geteuid()):
                what = f"{each} is a link of {_name(owner)}, who could redirect it to other files"
                raise BusbarError(what, where=where, hint="pass the directory itself")


def refuse_shared(directory: Path, where: str) -> Path:
    """Return a directory with links resolved; raise ``BusbarError`` if another user can change it.

    Only the caller and root may be able to write to it or its parents.
    """
    refuse_links(directory, where)
    real = directory.resolve()
    for path in (real, *real.parents):
        if who := _writer(path, {0, os.geteuid()}, alone=True):
            what = f"{who} {path}, and files in {real} are executed"
            hint = "use a directory that only you can write to"
            raise BusbarError(what, where=where, hint=hint)
    return real


def refuse_foreign_code(file: Path) -> Path:
    """Return a file to execute; raise ``BusbarError`` if another user can change it.

    The caller, root, and the owner of this installation are trusted. For root, all parent
    directories are checked: a user who can write to one of them could replace the file.
    """
    here = next(path for path in Path(__file__).parents if path.exists())  # inside a zip
    trusted = {0, os.geteuid(), here.stat().st_uid}
    refuse_links(file, str(file))
    ways = (file.absolute(), file.resolve())
    above = [path for way in ways for path in (way.parents if _is_root() else (way.parent,))]
    for path in dict.fromkeys((*ways, *above)):
        if who := _writer(path, trusted, alone=True):
            what = f"{who} {path}, and {file.name} is executed"
            hint = "let you, root or the owner of Busbar own both, and no one else write"
            raise BusbarError(what, where=str(file), hint=hint)
    return file


def _writer(path: Path, trusted: set[int], *, alone: bool = False) -> str:
    """Describe who besides the trusted users can write to a path; empty if nobody can.

    With ``alone``, groups with other members count.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    if found.st_uid not in trusted:
        return f"{_name(found.st_uid)} owns"
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    # A user's private group with the same number has no other members.
    if alone and found.st_mode & stat.S_IWGRP and found.st_gid not in (0, found.st_uid):
        return f"the group {found.st_gid} can write to"
    return "anyone can write to" if found.st_mode & stat.S_IWOTH and not sticky else ""


def _name(uid: int) -> str:
    with suppress(KeyError):  # an account without a name, common in containers
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def replace_file(path: Path, content: str | bytes, *, public: bool = False) -> None:
    """Write a file atomically, without following a link of that name.

    ``public`` makes it world-readable regardless of the umask. Raises ``BusbarError`` for another
    user's link in the path, for root also for their directory, and otherwise ``OSError``.
    """
    refuse_foreign_to_root(path.parent, str(path))
    if path.exists() and not path.is_file():  # root would replace /dev/null by a file
        raise OSError(0, "not a regular file")
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
    except BaseException:  # an interruption must not leave a partial file either
        os.unlink(name)
        raise


def visible(text: str, keep: str = "\t\n") -> str:
    r"""Escape characters that a terminal obeys or hides, such as ``\x1b`` and ``\u202e``.

    These are all characters that Unicode does not classify as printable (controls, formats such as
    text direction, separators other than the space, lone surrogates, unassigned characters),
    except ``keep``.
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
    """Return ``text`` as part of one line: line feeds are escaped, too."""
    return visible(text, keep="\t")


def metric_label(text: str) -> str:
    """Return a label value in the Prometheus text format."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def slurm_reason(text: str) -> str:
    """Return text that shells, tables and Slurm's parsers do not misinterpret."""
    return " ".join(re.sub(r"[^ !#%&()*+,./0-9:;<=>?@A-Z\[\]_a-z{}~-]", "?", text).split())


def read_text(
    path: Path, most: int = MOST_BYTES, *, errors: str = "strict", own: bool = False
) -> str:
    """Return the text of a regular file of at most ``most`` bytes; raise ``OSError`` otherwise.

    ``errors`` is passed to ``bytes.decode``. With ``own``, the file must belong to the caller or
    root.
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
