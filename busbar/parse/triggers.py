# SPDX-License-Identifier: MIT
"""Find the few lines of a large text that any parser reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import re2

_MEMORY = 64 << 20
"""Upper bound of the automaton's cache; a few MB are used."""
_LETTERS = bytes(range(128)) + b"w" * 128
_T = TypeVar("_T")


def literal(text: str) -> str:
    """Return the trigger for a text as it is."""
    return str(re2.escape(text))


class Triggers(Generic[_T]):
    """Regular expressions, each with what it is for.

    RE2 searches all of them at once, so that the time does not depend on their number. They have
    no look-around. An owner in ``exact`` is of few of the lines with its triggers: those with
    that expression as well.
    """

    def __init__(self, rows: Iterable[tuple[str, _T]], exact: Mapping[_T, str]) -> None:
        self._owners: dict[str, list[_T]] = {}
        for trigger, owner in rows:
            self._owners.setdefault(trigger, []).append(owner)
        self._exact = [*exact]
        of_exact = [t for t, owners in self._owners.items() if exact.keys() & owners]
        plain = {t: tuple(o) for t, o in self._owners.items() if t not in of_exact}
        self._of_index = [*plain.values(), ()]
        self._set = re2.Set.SearchSet(options())
        for trigger in (*plain, *filter(None, ["|".join(of_exact)])):
            self._set.Add(trigger.encode())
        self._set.Compile()
        self._filter = re2.Filter()
        for expression in exact.values():
            self._filter.Add(expression.encode(), options())
        self._filter.Compile()

    def of(self, line: bytes) -> tuple[_T, ...]:
        """Return the owners of the triggers in a line."""
        found = self._set.Match(line) or ()
        owners = tuple(owner for at in sorted(found) for owner in self._of_index[at])
        if len(self._of_index) - 1 in found:
            owners += tuple(self._exact[at] for at in self._exactly(line))
        return owners

    def _exactly(self, line: bytes) -> Sequence[int]:
        """Return the places of the exact owners of a line."""
        found = {*(self._filter.Match(line) or ())}
        if not line.isascii():  # letters of other languages are bytes of words
            found |= {*(self._filter.Match(line.translate(_LETTERS)) or ())}
        return sorted(found)

    def searcher(self, *more: str, without: Iterable[_T] = ()) -> re2.Expression:
        """Return one expression that finds any trigger, or one of ``more``, in a text.

        Triggers for ``without`` only are left out.
        """
        left_out = {*without}
        own = [trigger for trigger, owners in self._owners.items() if not left_out >= {*owners}]
        return re2.compile("|".join([*own, *more]).encode(), options())


def options() -> re2.Options:
    """Return the options for bytes of any encoding."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are
    options.max_mem = _MEMORY
    return options
