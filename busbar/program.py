# SPDX-License-Identifier: MIT
"""Run programs of the machine; a missing or hanging program also gives an answer."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

NO_ANSWER = 127
"""Exit status of a program that is missing or does not answer."""
ANSWER_S = 30


def call(
    command: Sequence[str | Path],
    seconds: float | None = ANSWER_S,
    env: Mapping[str, str] | None = None,
    given: str = "",
) -> CompletedProcess[str]:
    """Run a program; if it is missing or hangs, return an exit status and an error.

    ``given`` is its standard input.
    """
    heard = b""
    try:
        return subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
            env=env,
        )
    except OSError as error:
        why = error.strerror or str(error)
    except subprocess.TimeoutExpired as error:
        why = f"does not answer within {seconds} s"
        heard = error.stdout if isinstance(error.stdout, bytes) else b""
    return CompletedProcess(
        command, NO_ANSWER, heard.decode(errors="replace"), f"{command[0]}: {why}"
    )
