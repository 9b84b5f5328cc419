# SPDX-License-Identifier: MIT
"""CPU lists as Linux writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST = 2**16
"""More CPUs than Linux can be built for."""


def cpu_list(cpus: Iterable[int]) -> str:
    """``0-3,8`` for 0, 1, 2, 3, 8."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs of ``0-3,8``. Raises ``ValueError`` for anything else."""
    cpus: set[int] = set()
    for part in text.split(","):
        cpu_range = re.fullmatch(r"\s*(?P<first>\d+)(?:-(?P<last>\d+))?\s*", part)
        if not cpu_range:
            raise ValueError(f"{part!r} is no CPU and no range of CPUs, as in 0-3,8")
        first = int(cpu_range["first"])
        last = int(cpu_range["last"] or first)
        if not first <= last < _MOST:
            raise ValueError(f"{part!r} is no range of CPUs below {_MOST}")
        cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))
