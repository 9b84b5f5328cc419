# SPDX-License-Identifier: MIT
"""Limits for the runtime that converts or loads an untrusted image, which it does as the user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from busbar.errors import BusbarError
from busbar.preflight.tarball import unpacked_bytes

MOST_BYTES = 128 * 2**30
SECONDS = 1800
# `ulimit -f` counts blocks of 512 bytes.
_LIMITED = 'ulimit -f "$0" && exec "$@"'


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
    """Run a command with a limit of time and for the size of each file; return its output.

    Raises ``BusbarError`` if it fails. Nothing of it is left running.
    """
    limited = ["sh", "-c", _LIMITED, str(MOST_BYTES // 512), *command]
    name = " ".join(command[:2])
    with subprocess.Popen(
        limited,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise BusbarError(
                f"{name} took more than {SECONDS} s",
                where=where,
                hint="convert or load the image by hand",
            ) from None
        except BaseException:  # an interruption, too, must not leave it running
            _kill(process)
            raise
    if process.returncode:
        lines = (errors or output).strip().splitlines()
        raise BusbarError(
            f"{name} failed: {lines[-1] if lines else 'without output'}",
            where=where,
            hint="run that command by hand to see more",
        )
    return output


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the command with the programs that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
