# SPDX-License-Identifier: MIT
"""Lines that a program repeats with other addresses and process ids."""

from __future__ import annotations

_FREE_LINES = 1 << 13
"""Messages of a run that are all read: only logs that repeat themselves have more."""
_MOST_ALIKE = 64
"""Further lines of one shape that are read."""
_MOST_OF_A_TEXT = 1 << 12
"""Lines that are read of one text, whatever numbers are in it: as many as are kept of a kind."""
_MOST_SHAPES = 10_000
_LONGEST = 1024
_LONG_NUMBER = 5
"""Digits of a number that tells no code, rank or size: a process id, an address, a time."""
_DIGITS = b"0123456789"
_ONLY_DIGITS = bytes(each if each in _DIGITS else 0x20 for each in range(256))


class Shapes:
    """Counts the messages of a run by their shape: the text and its short numbers."""

    def __init__(self) -> None:
        self._nlines = 0
        self._shape: tuple[bytes, ...] = ()
        """Of the line that `is_worn` was asked about last."""
        self._counts: dict[tuple[bytes, ...], int] = {}
        self._texts: dict[bytes, int] = {}
        """The same without any number."""
        self.worn: set[bytes] = set()
        """Texts that were found to be worn: most lines of a log repeat one to the letter."""

    def is_worn(self, line: bytes) -> bool:
        """Return whether so many messages like a line were read that it can be left out."""
        if self._nlines < _FREE_LINES:
            return False
        line = line[:_LONGEST]
        if line in self.worn:
            return True
        text = line.translate(None, _DIGITS)
        if self._texts.get(text, 0) >= _MOST_OF_A_TEXT:
            return True
        numbers = line.translate(_ONLY_DIGITS).split()
        self._shape = shape = (text, *[each for each in numbers if len(each) < _LONG_NUMBER])
        worn = self._counts.get(shape, 0) >= _MOST_ALIKE
        if worn and len(self.worn) < _MOST_SHAPES:
            self.worn.add(line)
        return worn

    def count(self) -> None:
        """Count the line that is not worn: it is a message."""
        self._nlines += 1
        if self._shape:
            if len(self._counts) >= _MOST_SHAPES:
                self._counts.clear()
            self._counts[self._shape] = self._counts.get(self._shape, 0) + 1
            if len(self._texts) >= _MOST_SHAPES:
                self._texts.clear()
            self._texts[self._shape[0]] = self._texts.get(self._shape[0], 0) + 1
