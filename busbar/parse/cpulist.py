# SPDX-License-Identifier: MIT
"""Format and parse Linux CPU lists."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MAX_CPUS = 2**16
"""More CPUs than any Linux kernel supports."""


def cpu_list(cpus: Iterable[int]) -> str:
    """Return ``0-3,8`` for 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list such as ``0-3,8``. Raises ``ValueError`` for anything else."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(?P<first>\d+)(?:-(?P<last>\d+))?\s*", part)
        if not match:
            raise ValueError(f"invalid CPU or range {part!r}; write a list such as 0-3,8")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if not first <= last < _MAX_CPUS:
            raise ValueError(f"invalid range of CPUs {part!r}; CPUs are below {_MAX_CPUS}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def checked_cpu_list(text: str) -> str:
    """Return the list as it is. Raises ``ValueError`` as ``parse_cpu_list``."""
    parse_cpu_list(text)
    return text
