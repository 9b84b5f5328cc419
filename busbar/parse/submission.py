# SPDX-License-Identifier: MIT
"""Why a scheduler did not run a job, from ReFrame's message about it."""

from __future__ import annotations

import re

_COMMAND = re.compile(
    r"command '(?P<tool>sbatch|scontrol|squeue|sacct|qsub|bsub|flux|oarsub)\b"
    r".*?' (?P<end>failed with exit code|timed out)",
    re.DOTALL,
)
_STDERR = re.compile(r"--- stderr ---\n(?P<text>.*?)\n*--- stderr ---", re.DOTALL)
_PREFIX = re.compile(r"^(?:\w+: )?(?:error|fatal): ")
_BLOCKED = re.compile(r"job cancelled because it was blocked due to reason: (?P<reason>.+)")
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_NAMES = {"sbatch": "Slurm", "scontrol": "Slurm", "squeue": "Slurm", "sacct": "Slurm"}


def not_run(message: str) -> str:
    """Return why the job of a message of ReFrame did not run, in the words of the scheduler.

    Return an empty string if the message has no such reason.
    """
    if command := _COMMAND.search(message):
        name = _NAMES.get(command["tool"], command["tool"])
        if command["end"] == "timed out":
            return f"{name} did not answer in time ({command['tool']})"
        text = _STDERR.search(message)
        lines = (
            [_PREFIX.sub("", line.strip()) for line in text["text"].splitlines()] if text else []
        )
        words = "; ".join(dict.fromkeys(line for line in lines if line))
        verb = "refused the job" if command["tool"] not in ("squeue", "sacct") else "failed"
        return f"{name} {verb}: {words or command['tool'] + ' printed no reason'}"
    if blocked := _BLOCKED.search(message):
        return f"the job could not start: {blocked['reason'].strip()}"
    return no_space(message)


def no_space(text: str) -> str:
    """Return that a file system is full if a text has the message of the system; else nothing."""
    line = _NO_SPACE.search(text)
    return f"{line[0]}: free some space, or choose another --output" if line else ""
