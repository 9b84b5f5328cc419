# SPDX-License-Identifier: MIT
"""Limits for the runtime that converts or loads an untrusted image, which it does as the user."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from busbar.errors import BusbarError
from busbar.preflight.confined import run_limited
from busbar.preflight.tarball import unpacked_bytes

MOST_BYTES = 128 * 2**30
SECONDS = 1800


def refuse_too_large(archive: Path, directories: Iterable[Path]) -> None:
    """Raise ``BusbarError`` if an archive unpacks to more than the limit or the free space."""
    nbytes = unpacked_bytes(archive, str(archive), MOST_BYTES)
    for directory in directories:
        free = shutil.disk_usage(directory).free
        if nbytes > free:
            raise BusbarError(
                f"has {free >> 20} MiB free, and {archive} unpacks to {nbytes >> 20} MiB",
                where=str(directory),
                hint="make room, or choose another --output and APPTAINER_TMPDIR",
            )


def run_bounded(command: Sequence[str], where: str) -> str:
    """Run a command of the runtime; return its output."""
    hint = "run that command by hand to see more"
    with tempfile.TemporaryFile() as printed:
        run_limited(command, printed, where, hint, SECONDS, MOST_BYTES)
        printed.seek(0)
        return printed.read().decode(errors="replace")


def export(command: Sequence[str], where: str, archive: IO[bytes]) -> None:
    """Run a command of the runtime that prints an image; write it to a file."""
    hint = "use a smaller image, or convert it with apptainer build"
    run_limited(command, archive, where, hint, SECONDS, MOST_BYTES)
