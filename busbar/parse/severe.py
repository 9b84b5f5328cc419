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

UNCLEAR = "unclear"
"""The kind of lines of which nobody knows what they ended; they count only after results."""
_TABLES = beside(__file__)
_SURVIVED = {errno.ENOENT, errno.EEXIST, errno.EAGAIN, errno.EINTR, errno.EPIPE, errno.ECONNRESET}
"""Errors that programs survive, or that follow from the end of another one."""
_ENDING = sorted(errno.errorcode.keys() - _SURVIVED)
_NAMED = {
    "strerror": "|".join(re.escape(os.strerror(number)) for number in _ENDING),
    "survived": "|".join(re.escape(os.strerror(number)) for number in sorted(_SURVIVED)),
    "errno": "|".join(errno.errorcode[number] for number in _ENDING),
    **{name: f"(?:{'|'.join(rows)})" for name, rows in _TABLES["words"].items()},
}
"""The expressions that the table calls by a name in braces."""
_NAME = re.compile(rf"\{{(?P<name>{'|'.join(_NAMED)})\}}")


def _rows(part: str, key: str = "form") -> Iterator[tuple[str, str]]:
    """Yield the expressions of a part of the table, each with the name of its row."""
    for name, row in _TABLES[part].items():
        for form in row[key]:
            yield _NAME.sub(lambda each: _NAMED[each["name"]], form), name


_KINDS = {
    name: UNCLEAR if "unclear" in row else "severe" for name, row in _TABLES["forms"].items()
}
TRIGGERS = {
    kind: "|".join({word: None for word, of in _rows("forms", "words") if _KINDS[of] == kind})
    for kind in ("severe", UNCLEAR)
}
"""By kind: a line with a form has a word of it."""
excuses, _of_unclear = (
    lru_cache(maxsize=64)(Triggers(_rows(part), {}).of)
    for part in ("excuses", "excuses_of_unclear")
)
"""Return the names of what makes a line harmless; of any, and of one that is not severe."""


def _excused(name: str) -> Callable[[bytes], bool]:
    despite = {*_TABLES["forms"][name].get("despite", ())}
    unclear = _KINDS[name] == UNCLEAR
    return lambda line: not ({*excuses(line), *(_of_unclear(line) if unclear else ())} <= despite)


def _pattern(form: str, name: str) -> Pattern:
    text, anchored = f"(?P<text>(?:{form}).*)", form.startswith("^")
    return Pattern(_KINDS[name], b"", text, anchored=anchored, excused=_excused(name))


PATTERNS = tuple(_pattern(*row) for row in _rows("forms"))
