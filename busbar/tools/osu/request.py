# SPDX-License-Identifier: MIT
"""How a test of OSU is asked: its command line."""

from __future__ import annotations

from collections.abc import Sequence


def command(
    program: str,
    sizes: tuple[int, int],
    *,
    memory: str = "",
    validated: bool = False,
    more: Sequence[str] = (),
    buffers: str = "",
) -> tuple[str, ...]:
    """Return ``osu_bw -c -d cuda -m FIRST:LAST D D``; ``more`` are options of the user."""
    first, last = sizes
    return (
        *(program, *(["-c"] if validated else []), *(["-d", memory] if memory else [])),
        *("-m", f"{first}:{last}", *more, *buffers.split()),
    )
