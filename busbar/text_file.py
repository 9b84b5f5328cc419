# SPDX-License-Identifier: MIT
"""Read a text file of the user: a regular file of bounded size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 2**20


def read_text(path: Path, most: int = MOST_BYTES, *, errors: str = "strict") -> str:
    """Return the text of a file; raise ``OSError`` for anything but a file of ``most`` bytes.

    A pipe would block, and a device may never end. ``errors`` is as for ``bytes.decode``.
    """
    with open(path, "rb", opener=_without_waiting) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(0, "not a regular file")
        data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(0, f"has more than {most:,} bytes")
    return data.decode("utf-8", errors)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
