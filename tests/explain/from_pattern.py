# SPDX-License-Identifier: MIT
"""Text that a regular expression matches: the shortest, with the first of each choice."""

from __future__ import annotations

import re
from re import (
    _constants as codes,  # type: ignore[attr-defined]
    _parser as parser,  # type: ignore[attr-defined]
)
from typing import Any

_CLASSES = {
    codes.CATEGORY_DIGIT: "7",
    codes.CATEGORY_WORD: "w",
    codes.CATEGORY_SPACE: " ",
    codes.CATEGORY_NOT_SPACE: "x",
    codes.CATEGORY_NOT_DIGIT: "x",
    codes.CATEGORY_NOT_WORD: "-",
}
_LETTERS = "xwn7/-.: "
_BOUNDARY = "\0"


def _one_of(items: list[tuple[Any, Any]]) -> str:
    """Return a character of a set."""
    if items[0][0] is codes.NEGATE:
        taken = {chr(value) for code, value in items if code is codes.LITERAL}
        return next(each for each in _LETTERS if each not in taken)
    code, value = items[0]
    if code is codes.LITERAL:
        return chr(value)
    return chr(value[0]) if code is codes.RANGE else _CLASSES[value]


def _text(tokens: Any, groups: dict[int, str]) -> str:
    return "".join(_of_token(code, value, groups) for code, value in tokens)


def _of_token(code: Any, value: Any, groups: dict[int, str]) -> str:  # noqa: C901, PLR0911
    match code:
        case codes.LITERAL:
            return chr(value)
        case codes.NOT_LITERAL:
            return next(each for each in _LETTERS if each != chr(value))
        case codes.ANY:
            return "x"
        case codes.IN:
            return _one_of(value)
        case codes.BRANCH:
            return _text(value[1][0], groups)
        case codes.SUBPATTERN:
            groups[value[0]] = _text(value[3], groups)
            return groups[value[0]]
        case codes.MAX_REPEAT | codes.MIN_REPEAT:
            return _text(value[2], groups) * value[0]
        case codes.GROUPREF:
            return groups[value]
        case codes.ASSERT if value[0] > 0:
            return _text(value[1], groups)  # what is ahead must also be there
        case codes.AT if value is codes.AT_BOUNDARY:
            return _BOUNDARY
    return ""


def matching(pattern: re.Pattern[str], needle: str) -> str:
    """Return a text with ``needle`` that a pattern matches; raise ``ValueError`` without one."""
    marked = _text(parser.parse(pattern.pattern, pattern.flags), {})
    text = re.sub(rf"(?<=\w){_BOUNDARY}(?=\w)", " ", marked).replace(_BOUNDARY, "")
    for each in (text, f" {text}", f"{text} {needle}", f"{needle}{text}", f"{text}\n"):
        if needle in each and "\n" not in each and pattern.search(each):
            return each
    raise ValueError(f"no text for {pattern.pattern!r}, tried {text!r}")
