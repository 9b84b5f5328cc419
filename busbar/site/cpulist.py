# SPDX-License-Identifier: MIT
"""CPU lists as Linux writes them."""

from __future__ import annotations

from collections.abc import Iterable


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
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))
