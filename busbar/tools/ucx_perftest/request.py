# SPDX-License-Identifier: MIT
"""How ucx_perftest is asked: its options and sizes."""

from __future__ import annotations

from collections.abc import Sequence

SIZE = 1 << 26
ANY_SIZE = 1 << 22
"""Through a port that the site does not name, which may be slow: 50 Mbit/s take 22 s."""
# UCX says at log level info which transports it took.
LOGGED = {"UCX_LOG_LEVEL": "info", "UCX_LOG_FILE": "stderr"}


def command(program: str, memory: str, size: int, more: Sequence[str]) -> tuple[str, ...]:
    """Return the words that both parts of a measurement have."""
    count = ("-n", "50") if size == SIZE else ("-n", "30", "-w", "3")
    return (program, "-m", memory, "-t", "tag_bw", "-s", str(size), *count, *more)
