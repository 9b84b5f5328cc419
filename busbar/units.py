# SPDX-License-Identifier: MIT
"""Sizes and rates: GB is 1e9 bytes, MiB is 2**20 bytes."""

from __future__ import annotations

import re

MIB = 2**20
GIB = 2**30
_SUFFIXES = {"": 1, "K": 2**10, "M": MIB, "G": GIB, "T": 2**40}


def parse_bytes(text: str) -> int:
    """Bytes of ``"16M"``, ``"16MiB"`` or ``"16777216"``; suffixes are powers of 1024.

    Raises ``ValueError`` naming the text.
    """
    size = re.fullmatch(
        r"(?P<number>\d+)\s*(?P<unit>[KMGT]?)(?:iB|B)?", text.strip(), re.IGNORECASE
    )
    if not size:
        raise ValueError(
            f"{text!r} is not a size; write bytes or a suffix, as in 65536, 64K, 16MiB"
        )
    return int(size["number"]) * _SUFFIXES[size["unit"].upper()]


def option_bytes(count: int) -> str:
    """``16M`` for 16777216, as options of benchmarks take it."""
    return format_bytes(count).replace(" ", "").removesuffix("B").removesuffix("i")


def format_bytes(count: int) -> str:
    """``16 MiB`` for 16777216; exact, so 1000 stays ``1000 B``."""
    for suffix in ("TiB", "GiB", "MiB", "KiB"):
        unit = _SUFFIXES[suffix[0]]
        if count >= unit and count % unit == 0:
            return f"{count // unit} {suffix}"
    return f"{count} B"
