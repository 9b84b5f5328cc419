# SPDX-License-Identifier: MIT
"""How ``gpu_aware`` is asked: what it checks, and how it measures."""

from __future__ import annotations

COLLECTIVES = (
    *("bcast", "allgather", "allgatherv", "alltoall", "alltoallv", "allreduce", "reduce"),
    *("reduce_scatter_block", "gather", "scatter", "put", "get"),
)
BEST_WINDOWS = "--statistic=best --window=4 --seconds=0.1"
"""A machine shared with others is judged by its best windows, which must be short enough to fall
between two interruptions."""
BEST_MESSAGES = "--statistic=best --window=1 --seconds=0.5"
BESIDE_COPIES = "--copy"
"""Also measure plain copies, and compare readings of host memory with them."""


def command(program: str, options: dict[str, str], *more: str) -> tuple[str, ...]:
    """Return the program with its options; those without a value are left out."""
    given = (f"--{name}={value}" for name, value in options.items() if value)
    return (program, *given, *more)
