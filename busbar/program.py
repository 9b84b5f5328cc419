# SPDX-License-Identifier: MIT
"""Ask a program of the machine; one that is missing or silent gives an answer, too."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

NO_ANSWER = 127
"""The exit status of a program that is missing or silent."""
ANSWER_S = 30


def call(
    command: Sequence[str | Path],
    seconds: float | None = ANSWER_S,
    env: Mapping[str, str] | None = None,
    given: str = "",
) -> CompletedProcess[str]:
    """Run a program; one that is missing or silent has an exit status and an error.

    It gets ``given`` on its standard input.
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
