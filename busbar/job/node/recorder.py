# SPDX-License-Identifier: MIT
"""Ask PyTorch's flight recorder in a rank for a dump, and read it.

https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html: a rank with
``TORCH_NCCL_DEBUG_INFO_PIPE_FILE`` dumps what it has recorded when something is written to its
pipe, and goes on.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from busbar.engine.documents import Collective, last_collectives, load
from busbar.job.node.process import words_of

_MOST_BYTES = 16 << 20
_MOST_GROUPS = 64
_POLL_S = 0.1


def _open(pid: int, path: str, flags: int, kind: int) -> int:
    """Open a file as a rank sees it; ``OSError`` if it is another kind, or of another user.

    A device is not even opened: it may start something. Root owns `/proc/PID` of a setuid program,
    to which the other user gave its environment.
    """
    place = f"/proc/{pid}/{'root' if path[:1] == '/' else 'cwd'}/{path}"
    number = os.open(place, os.O_PATH | os.O_NOFOLLOW)
    try:
        found, owner = os.fstat(number), words_of(f"/proc/{pid}/status").get("Uid")
        if stat.S_IFMT(found.st_mode) != kind or str(found.st_uid) != owner:
            raise PermissionError(path)
        return os.open(f"/proc/self/fd/{number}", flags | os.O_NONBLOCK)
    finally:
        os.close(number)


def _content(pid: int, path: str, old: int | None = None) -> tuple[int, bytes]:
    """Return when a file was written, and what it holds if it is newer than ``old``."""
    with suppress(OSError), os.fdopen(_open(pid, path, os.O_RDONLY, stat.S_IFREG), "rb") as file:
        written = os.fstat(file.fileno()).st_mtime_ns
        return written, b"" if old in (None, written) else file.read(_MOST_BYTES)
    return 0, b""


def dumps(ranks: Iterable[tuple[int, str, str]], seconds: float) -> dict[int, list[Collective]]:
    """Return the last collective of each group of the ranks that dump in time.

    ``ranks``: process, name of its pipe and of its dump.
    """
    before, found = {}, {}
    for pid, pipe, path in ranks:
        with suppress(OSError):
            written = _content(pid, path)[0]
            with os.fdopen(_open(pid, pipe, os.O_WRONLY, stat.S_IFIFO), "wb", buffering=0) as to:
                to.write(b"1")
            before[pid, path] = written
    stop = time.monotonic() + seconds
    while before and time.monotonic() < stop:
        time.sleep(_POLL_S)
        for (pid, path), old in [*before.items()]:
            data = _content(pid, path, old)[1]
            if data and (document := load(data)):  # else it is still being written
                del before[pid, path]
                rows = islice(last_collectives(document), _MOST_GROUPS)
                found[pid] = [(g[:60], n, what[:40], size, s[:20]) for g, n, what, size, s in rows]
    return found
