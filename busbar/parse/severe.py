# SPDX-License-Identifier: MIT
"""Lines that say that something failed, in whatever words: the forms of severe.yaml."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from busbar.parse.messages import Pattern
from busbar.parse.tables import beside
from busbar.parse.triggers import Triggers

_TABLES = beside(__file__)
_SURVIVED = {errno.ENOENT, errno.EEXIST, errno.EAGAIN, errno.EINTR, errno.EPIPE, errno.ECONNRESET}
"""Errors that programs survive, or that follow from the end of another one."""
_ENDING = sorted(errno.errorcode.keys() - _SURVIVED)
_NAMED = {
    "strerror": "|".join(re.escape(os.strerror(number)) for number in _ENDING),
    "survived": "|".join(re.escape(os.strerror(number)) for number in sorted(_SURVIVED)),
    "errno": "|".join(errno.errorcode[number] for number in _ENDING),
    "failed": "|".join(_TABLES["failed"]),
}
"""The expressions that the table calls by a name in braces."""
_NAME = re.compile(rf"\{{(?P<name>{'|'.join(_NAMED)})\}}")


def _rows(part: str, key: str = "form") -> Iterator[tuple[str, str]]:
    """Yield the expressions of a part of the table, each with the name of its row."""
    for name, row in _TABLES[part].items():
        for form in row[key]:
            yield _NAME.sub(lambda each: _NAMED[each["name"]], form), name


TRIGGER = "|".join(sorted({word for word, _ in _rows("forms", "words")}))
"""A line with a form has a word of it."""
_EXCUSES = Triggers(_rows("excuses"), {})
excuses = lru_cache(maxsize=64)(_EXCUSES.of)
"""Return the names of what makes a line harmless."""


def _excused(name: str) -> Callable[[bytes], bool]:
    despite = {*_TABLES["forms"][name].get("despite", ())}
    return lambda line: not despite.issuperset(excuses(line))


def _pattern(form: str, name: str) -> Pattern:
    text, anchored = f"(?P<text>(?:{form}).*)", form.startswith("^")
    return Pattern("severe", b"", text, anchored=anchored, excused=_excused(name))


PATTERNS = tuple(_pattern(*row) for row in _rows("forms"))
