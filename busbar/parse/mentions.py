# SPDX-License-Identifier: MIT
"""Tell a message that a program prints from one that a text only mentions.

Users paste commands, diffs, source code, manual pages and notes beside output. All of them hold
the same words as a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from busbar.parse.tables import beside

_QUOTES = "\"'`\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"
_QUOTE = re.compile(f"[{_QUOTES}]")
_CLOSING = str.maketrans(
    "\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}",
    "\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}",
)
_CELLS = 3
"""Parts of a row with two cells, but one: nothing is before the first bar and after the last."""
_BLANKS = 2
"""Blanks in a cell beside its text, one on each side."""
_NEAR = 240
"""Characters before a message that are looked at."""
_START = r"^(?:\d{4}-\d\d-\d\d[T ]\S{1,20} )?(?:> ?){0,4}"
_RE = {
    name: re.compile(f"{_START}(?:{words})" if name in ("other-text", "bare") else words)
    for name, rows in beside(__file__).items()
    if (words := rows if isinstance(rows, str) else "|".join(rows))
}
_IN_A_SENTENCE = 6
"""So many before a message make it a part of a sentence. Launchers wrap their sentences before."""
_AROUND_A_QUOTE = 2
"""So many around a message in backquotes make it a quotation."""
INTRODUCED = 8
"""Lines below such a sentence that belong to it."""
_WORDS_BEFORE_AN_EXCEPTION = 2
"""So many make the name of an exception a part of a sentence: Python begins a line with it."""
_ANCHOR = "[](){#"
"""How a page for MkDocs begins that others refer to."""
_HEADINGS = 4
"""So many below a title make a document."""
_DIRECTIVES = 3
"""So many lines of reStructuredText make a document: no program prints them."""


@lru_cache(maxsize=64)
def is_other_text(line: str) -> bool:
    """Return whether a line is a traced command, or of a diff, source code, or a document."""
    template = "%" in line or "{{" in line
    return bool(
        _RE["other-text"].match(line)
        or (template and _RE["placeholder"].search(line))
        or "(..., " in line  # a document leaves arguments out
        or _RE["names-others"].search(line)  # anybody can name a process so
    )


def _is_row(line: str) -> bool:
    """Return whether a line is a row of a table in Markdown.

    Tools pad the cells of their tables, so that the bars are below each other.
    """
    cells = line.strip().split("|")
    return (
        len(cells) > _CELLS
        and not cells[-1]
        and all(len(cell) - len(cell.strip()) <= _BLANKS for cell in cells)
    )


def is_mention(found: re.Match[str], needle: str) -> bool:
    """Return whether the line of a match only mentions the message, and no program printed it."""
    line = found.string
    at = max(found.start(), line.find(needle, found.start()))
    before = line[max(0, at - _NEAR) : at]
    quotes = _QUOTE.search(before)
    return bool(
        is_other_text(line)
        or _RE["quoted-event"].search(line, at)
        or _RE["trailing-comment"].search(before)
        or _RE["raised"].search(line[:at])
        or _RE["enumerates"].match(line, at)
        or _is_exception_in_a_sentence(found)
        or _is_in_a_sentence(line, found.start("text" if "text" in found.re.groupindex else 0))
        or (line.lstrip().startswith("|") and not found.group().startswith("|") and _is_row(line))
        or (_RE["command-word"].search(before) and _RE["command"].search(before))
        or _RE["none"].search(line[max(0, found.start() - _NEAR) : found.start()])
        or (quotes and (_is_source(line, at) or _is_quoted(line, at)))
    )


def is_document(head: str) -> bool:
    """Return whether a file begins as a manual, as source code with a licence, or as ours.

    All show messages that no program printed in this run. A table of a benchmark in it is of a
    run, so it is read.
    """
    if _RE["ours"].match(head):
        return True
    if _RE["table"].search(head):
        return False
    if _RE["licensed"].match(head):
        return _RE["declares"].search(head) is not None
    if head.startswith(_ANCHOR) or len(_RE["directive"].findall(head)) >= _DIRECTIVES:
        return True
    headings = _RE["heading"].findall(head)
    return (
        len(headings) >= _HEADINGS
        and _RE["title"].match(head) is not None
        and not any(_RE["reports"].search(heading) for heading in headings)
    )


def is_introduced(before: Sequence[str]) -> bool:
    """Return whether a document shows the line after ``before`` as what a program can print."""
    nearest = True
    for line in reversed(before[-INTRODUCED:]):
        text = line.strip()
        if not text or text.startswith(("```", "~~~", "..")):
            continue
        ends = text.rstrip("`*").endswith(":")
        if (
            (nearest or ends)
            and _RE["introduces"].search(text)
            and not _RE["of-a-person"].search(text)
        ):
            return True
        nearest = False
    return False


def _is_in_a_sentence(line: str, at: int) -> bool:
    """Return whether the words before a message are a sentence that goes on with it."""
    lead = line[:at]
    return "=" not in lead and (
        (len(_RE["stop-words"].findall(lead)) >= _IN_A_SENTENCE and not _RE["level"].search(lead))
        or _RE["condition"].match(lead) is not None
    )


def _is_exception_in_a_sentence(found: re.Match[str]) -> bool:
    """Return whether a message begins with the name of an exception that a text is about."""
    start = found.start("text" if "text" in found.re.groupindex else 0)
    lead = found.string[:start].rstrip()
    return (
        _RE["exception"].match(found.string, start) is not None
        and lead[-1:].islower()
        and len(_RE["stop-words"].findall(found.string[:start])) >= _WORDS_BEFORE_AN_EXCEPTION
        and not _RE["of-a-person"].search(lead)
    )


def _is_source(line: str, at: int) -> bool:
    """Return whether a literal of source code holds the message."""
    head = line[max(0, at - _NEAR) : at]
    call = _RE["call"].search(head)
    if call and not call["raised"] and call["name"].endswith(("Error", "Exception", "Interrupt")):
        return False  # Python prints exceptions in this form
    if _RE["field"].search(head):
        return True
    literal = call or _RE["bare"].search(head)
    if not literal:
        return False
    _, closing, rest = line[at:].partition(literal["quote"])
    return bool(closing and _RE["rest-of-code"].match(rest))


def _is_quoted(line: str, at: int) -> bool:
    """Return whether a sentence, a table of a document or a list quotes the message."""
    begin = max(line.rfind(quote, max(0, at - _NEAR), at) for quote in _QUOTES)
    if begin < 1:
        return False
    before = line[:begin].rstrip("`")
    if _RE["leads"].search(before[-40:]):
        return True
    _, closing, rest = line[begin + 1 :].partition(line[begin].translate(_CLOSING))
    if not closing:
        return False
    rest = rest.lstrip("`")
    if line[begin] == "`" and len(_RE["stop-words"].findall(before + rest)) >= _AROUND_A_QUOTE:
        return True
    in_list = before.rstrip()[-1:] in ("[", ",") and _RE["item"].match(rest)
    in_tuple = _RE["tuple"].search(before) and _RE["item"].match(rest)
    in_table = line[begin] == "`" and before.lstrip().startswith("|")
    listed = before.strip() in ("-", "*") and _RE["listed"].match(rest)
    return bool(
        in_list
        or in_tuple
        or in_table
        or listed
        or _RE["advice"].match(line)
        or _RE["explains"].match(rest)
    )
