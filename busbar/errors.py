# SPDX-License-Identifier: MIT
"""The error class for users: the error, its location, and the next step."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from busbar.near import nearest, question

DAMAGED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Exceptions raised by a value of an unexpected form."""


_MOST_KNOWN = 45
"""Words in a list of all that are known."""
_PERMISSIONS = "ls -l shows its permissions, chmod changes them"
_STEPS = {
    errno.ENOENT: "check the path",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "choose another place",
    errno.EISDIR: "name a file in that directory",
}
"""What to do if a file cannot be read or written."""


class BusbarError(Exception):
    """Invalid input or a missing prerequisite; the command prints it and exits with status 2.

    ``what`` is one sentence. ``where`` is the file with the key or line
    (``site/p5/site.yaml: fabric.nics``, ``run.log:17``). ``hint`` is the next step, which each
    error has.
    """

    def __init__(
        self, what: str, *, hint: str, where: str = "", others: Sequence[BusbarError] = ()
    ) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        self.others = tuple(others)
        """More errors of the same file."""
        super().__init__(str(self))

    def __str__(self) -> str:
        more = len(self.others)
        return f"{self.alone()}; {more} more error{'s' * (more > 1)}" if more else self.alone()

    def alone(self) -> str:
        """Return the text without the number of other errors."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.hint}" if self.hint else text


@contextmanager
def file_error(what: str, where: object = None, hint: str = "") -> Iterator[None]:
    """Turn an ``OSError`` into ``what``, its reason, and the next step: "cannot be read: ..."."""
    try:
        yield
    except OSError as error:
        raise of_os(error, what, where, hint) from error


def of_os(error: OSError, what: str, where: object = None, hint: str = "") -> BusbarError:
    """Return the error for users of an ``OSError``; the next step follows from its kind."""
    place = str(where if where is not None else error.filename or "")
    step = hint or _STEPS.get(error.errno or 0, "check the path")
    if error.errno == errno.ENOENT and "written" in what and (parent := os.path.dirname(place)):
        step = f"mkdir -p {shlex.quote(parent)} makes its directory"
    return BusbarError(f"{what}: {error.strerror or error}", where=place, hint=step)


@contextmanager
def value_error(
    what: str,
    where: object,
    hint: str,
    kinds: type[Exception] | tuple[type[Exception], ...] = ValueError,
) -> Iterator[None]:
    """Turn a value error into ``what``: ``{}`` is its text, ``{kind}`` its class."""
    try:
        yield
    except kinds as error:
        text = what.replace("{kind}", type(error).__name__).replace("{}", str(error), 1)
        raise BusbarError(text, where=str(where), hint=hint) from error


def several(errors: Sequence[BusbarError]) -> BusbarError:
    """Return the first of several errors, which counts the others."""
    first = errors[0]
    return BusbarError(first.what, where=first.where, hint=first.hint, others=errors[1:])


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return ``did you mean 'x'?`` for the words that may be meant, or ``otherwise``, or all."""
    words = list(known)
    more = f" and {len(words) - _MOST_KNOWN} more" * (len(words) > _MOST_KNOWN)
    every = f"known: {', '.join(words[:_MOST_KNOWN]) or 'none'}{more}"
    return question(nearest(word, words)) or otherwise or every


def require_known(
    what: str, word: object, known: Iterable[str], where: str = "", otherwise: str = ""
) -> None:
    """Raise ``BusbarError`` for a word that is not known: ``no partition 'gpuu'``."""
    words = list(known)
    if word not in words:
        hint = suggestion(str(word), words, otherwise)
        raise BusbarError(f"{what} {word!r}", where=where, hint=hint)
