# SPDX-License-Identifier: MIT
"""Lists and counts in words, and things by what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


def grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    """Return the values of each key, both in their order."""
    found: dict[_K, list[_V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def repeated(values: Iterable[object]) -> Iterator[int]:
    """Yield the place of each value that is the same as an earlier one."""
    known: set[object] = set()
    for at, value in enumerate(values):
        if value in known:
            yield at
        known.add(value)


def counted(count: int, noun: str) -> str:
    """Return ``1 check`` or ``2 checks``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def names_text(names: Sequence[str], most: int = 3) -> str:
    """Return ``a, b, c and 4 more``."""
    distinct = list(dict.fromkeys(names))
    text = ", ".join(distinct[:most])
    return text + (f" and {len(distinct) - most} more" if len(distinct) > most else "")
