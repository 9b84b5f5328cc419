# SPDX-License-Identifier: MIT
"""Prerequisites of a run: environment variables, shared memory, and an exclusive directory."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from busbar.boundary import regular
from busbar.delivery.visibility import without_visible_devices
from busbar.errors import file_error
from busbar.parse.tables import refused

if TYPE_CHECKING:
    from busbar.site import Site

_IGNORED = re.compile(r"RFM_(?!VERBOSE$)|SBATCH_(?!\w*_BIND)")
"""Variables of ReFrame and sbatch, except those that sbatch sets in a job (``_BIND``)."""
_OF_A_RANK = re.compile(r"(?:OMPI|PMIX|PMI|PRTE)_(?!MCA_)|MPI_LOCAL(?:RANKID|NRANKS)$")
"""Variables of a rank, set if the command itself was started by a launcher."""
_SHM = Path("/dev/shm")  # noqa: S108 - the directory that MPI libraries use
_SHM_BYTES = 32 << 20
_SPARE_BYTES = 1 << 20
LOCK = ".lock"
_LOCK_CHARACTERS = 300
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def ignored_variables() -> list[str]:
    """Return variables that would change ReFrame or its jobs; only options count.

    ReFrame silently removes the options of sbatch.
    """
    return sorted(name for name in os.environ if _IGNORED.match(name))


def environment_of_jobs() -> dict[str, str]:
    """Return the environment of ReFrame and its jobs."""
    dropped = set(ignored_variables())
    return {
        name: value
        for name, value in without_visible_devices().items()
        if name not in dropped and not _OF_A_RANK.match(name)
    }


def set_home() -> None:
    """Set HOME if it is empty, because Open MPI does not start without it."""
    if not os.environ.get("HOME"):
        try:
            os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:  # a user ID without an account, common in containers
            os.environ["HOME"] = "/"


def refuse_without_shared_memory(site: Site, directory: Path = _SHM) -> None:
    """Raise ``BusbarError`` if ranks on this machine could not share memory.

    UCX works without /dev/shm, but not if it is full.
    """
    if site.scheduler != "local" or not directory.is_dir():
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        raise refused(__file__, "not-writable", directory)
    free = shutil.disk_usage(directory).free
    if free < _SHM_BYTES:
        words = {"free": free >> 20, "needed": _SHM_BYTES >> 20}
        raise refused(__file__, "no-room", directory, **words)


def refuse_without_space(directory: Path) -> None:
    """Raise ``BusbarError`` if a file of 1 MiB cannot be written to the directory."""
    probe = directory / f".probe-{os.getpid()}"
    hint = "free some space, or choose another --output"
    try:
        with file_error("cannot be written", directory, hint), probe.open("wb") as file:
            file.write(bytes(_SPARE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with suppress(OSError):  # the directory has gone with the file
            probe.unlink(missing_ok=True)


@contextmanager
def own(directory: Path) -> Iterator[None]:
    """Lock the directory; raise ``BusbarError`` if another run uses it.

    The kernel releases the lock when its process ends. On file systems without locks, the process
    named in the file decides.
    """
    path = directory / LOCK
    with file_error("cannot be written", path, "choose another --output"):
        descriptor = _open_lock(path)
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        owner = file.read(_LOCK_CHARACTERS).strip()
        if not _locked(file.fileno(), owner):
            shown = f" (process {owner})" if owner else ""
            raise refused(__file__, "in-use", directory, owner=shown, path=path)
        _replace(file, f"{os.getpid()} on {socket.gethostname()}")
        try:
            yield
        finally:
            with suppress(OSError):  # the kernel releases the lock anyway
                _replace(file, "")


def _open_lock(path: Path) -> int:
    """Open a lock file; any user who can read it could lock it and block every run."""
    descriptor = regular(str(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if found.st_uid not in (0, os.geteuid()):
        raise OSError(0, "another user may have created it")
    if found.st_nlink == 1:  # else a link of another user, maybe to another file
        os.fchmod(descriptor, 0o600)
    return descriptor


def close_history_lock(history: Path) -> None:
    """Let no other user open the lock that ReFrame waits for at the end of each run."""
    with suppress(OSError):  # of another user, or missing and not ours to make: ReFrame says so
        history.mkdir(parents=True, exist_ok=True)
        os.close(_open_lock(history / ".db.lock"))


def _locked(descriptor: int, owner: str) -> bool:
    """Lock the file; if locks are not supported, return whether its owner has ended."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # another run has it
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        pid, _, host = owner.partition(" on ")
        return not owner or (host == socket.gethostname() and not Path("/proc", pid).exists())
    return True


def _replace(file: TextIO, text: str) -> None:
    if os.fstat(file.fileno()).st_nlink > 1:
        return
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()
