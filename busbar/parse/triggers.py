# SPDX-License-Identifier: MIT
"""Find the few lines of a large text that any parser reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import re2

_MEMORY = 64 << 20
"""Upper bound of the automaton's cache; a few MB are used."""
MOST_COMBINATIONS = 10_000
"""Combinations of triggers that are kept: lines of a log have few."""
_T = TypeVar("_T")


def literal(text: str) -> str:
    """Return the trigger for a text as it is."""
    return str(re2.escape(text))


class Triggers(Generic[_T]):
    """Regular expressions, each with what it is for.

    RE2 searches all of them at once, so that the time does not depend on their number. They have
    no look-around.
    """

    def __init__(self, rows: Iterable[tuple[str, _T]]) -> None:
        self._owners: dict[str, list[_T]] = {}
        for trigger, owner in rows:
            self._owners.setdefault(trigger, []).append(owner)
        self._of_index: Sequence[Sequence[_T]] = list(self._owners.values())
        self._of_indices: dict[tuple[int, ...], tuple[_T, ...]] = {}
        self._set = re2.Set.SearchSet(options())
        for trigger in self._owners:
            self._set.Add(trigger.encode())
        self._set.Compile()

    def of(self, line: bytes) -> tuple[_T, ...]:
        """Return the owners of the triggers in a line: the same tuple for the same triggers."""
        indices = self._set.Match(line)
        if not indices:
            return ()
        key = tuple(indices)
        owners = self._of_indices.get(key)
        if owners is None:
            owners = tuple(o for index in sorted(key) for o in self._of_index[index])
            if len(self._of_indices) < MOST_COMBINATIONS:
                self._of_indices[key] = owners
        return owners

    def searcher(self, *more: str, without: _T | None = None) -> re2.Expression:
        """Return one expression that finds any trigger, or one of ``more``, in a text.

        Triggers for ``without`` only are left out.
        """
        own = [trigger for trigger, owners in self._owners.items() if owners != [without]]
        return re2.compile("|".join([*own, *more]).encode(), options())


def options() -> re2.Options:
    """Return the options for bytes of any encoding."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are
    options.max_mem = _MEMORY
    return options
