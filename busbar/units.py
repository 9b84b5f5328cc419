# SPDX-License-Identifier: MIT
"""Parse and format sizes: GB is 1e9 bytes, MiB is 2**20 bytes."""

from __future__ import annotations

import re

MIB = 2**20
GIB = 2**30
_SUFFIXES = {"": 1, "K": 2**10, "M": MIB, "G": GIB, "T": 2**40}


def parse_bytes(text: str) -> int:
    """Return the bytes of ``"16M"``, ``"16MiB"`` or ``"16777216"``; suffixes are powers of 1024.

    Raises ``ValueError`` for anything else.
    """
    match = re.fullmatch(
        r"(?P<count>[0-9]{1,18})\s*(?P<suffix>[KMGT]?)(?:iB|B)?", text.strip(), re.IGNORECASE
    )
    if not match:
        raise ValueError(f"invalid size {text!r}; write a size such as 65536, 64K or 16MiB")
    return int(match["count"]) * _SUFFIXES[match["suffix"].upper()]


def option_bytes(count: int) -> str:
    """``16M`` for 16777216, as options of benchmarks take it."""
    return format_bytes(count).replace(" ", "").removesuffix("B").removesuffix("i")


def format_bytes(count: int) -> str:
    """Return ``16 MiB`` for 16777216; exact, so 1000 stays ``1000 B``."""
    for suffix in ("TiB", "GiB", "MiB", "KiB"):
        unit = _SUFFIXES[suffix[0]]
        if count >= unit and count % unit == 0:
            return f"{count // unit} {suffix}"
    return f"{count} B"
