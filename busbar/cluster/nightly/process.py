# SPDX-License-Identifier: MIT
"""Run a stage in a separate process, so that its crash does not end the night."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from busbar.boundary import read_text
from busbar.errors import BusbarError

GRACE_S = 45
"""How long a stage may take to end its jobs and to write what it measured."""
_MOST_BYTES, _MOST_CHARACTERS = 2**24, 300


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    """Negative for a signal."""
    late: bool
    """Whether it was ended at the deadline."""
    seconds: float
    said: str
    """The last line on standard error."""


def run(command: Sequence[str], stdout: Path, log: Path, deadline: float | None) -> Ended:
    """Run a command; end it at ``deadline``, a time of the monotonic clock."""
    begun, late = time.monotonic(), False
    try:
        with stdout.open("wb") as out, log.open("ab") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )
            try:
                status = process.wait(None if deadline is None else max(deadline - begun, 0))
            except subprocess.TimeoutExpired:
                late = True
                process.terminate()
                try:
                    status = process.wait(GRACE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    status = process.wait()
    except OSError as error:
        what = f"cannot be used: {error.strerror or error}"
        hint = "free some space, or repair the installation"
        raise BusbarError(what, where=str(error.filename or log), hint=hint) from error
    return Ended(status, late, round(time.monotonic() - begun, 3), _last_line(log))


def _last_line(log: Path) -> str:
    """Return the last line of a log that says something, without its end if it is long."""
    try:
        text = read_text(log, _MOST_BYTES, errors="replace")
    except OSError:
        return f"see {log}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_MOST_CHARACTERS] if lines else ""
