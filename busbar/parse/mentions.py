# SPDX-License-Identifier: MIT
"""Tell a message that a program prints from one that a text only mentions.

Users paste commands, diffs, source code, manual pages and notes beside output. All of them hold
the same words as a message.
"""

from __future__ import annotations

import re

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
_OTHER_TEXT = re.compile(
    _START + r"(?:"
    # A diff, or a command that the shell traces.
    r"\+{1,4}(?:\s|$)|-(?: {2}|\t)"
    # CMake and Autoconf.
    r"|--\s(?!>)|checking (?:for|if|whether|that)\b|configure: (?!error)"
    # Comments; source code that catches an error.
    r"|\s*//|\s*/\*|\s*(?:except|catch|elif|if|case|while)\b.{0,200}[:{]\s*$"
    r"|\s*assert\s"
    # A test that starts, or passed.
    r"|\s*\[ {0,8}(?:OK|ok|RUN|PASS(?:ED)?) {0,8}\]|ok \d+\b"
    # A list of errors, of a manual page or a tool: a name, then a sentence.
    r"|\s*E[A-Z]{3,14}\s+(?:\d{1,3}\s+)?[A-Z][a-z]|OS error code\s"
    # A change log, or the log of Git.
    r"|\s*(?:[-*]\s+)?(?:Fix(?:e[sd])?|Handle[sd]?|Add(?:ed|s)?|Avoid(?:s|ed)?|Improve[sd]?"
    r"|Resolve[sd]?|Prevent(?:s|ed)?|Revert(?:s|ed)?|Do not|Don't)\s"
    r"|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,9} \S"
    # An entry of a list of errors.
    r"|(?:SIGNATURE|REGEX|PATTERN|SUMMARY|DESCRIPTION|TITLE)="
    r")"
)
_COMMAND_WORD = re.compile(r"grep|rg|awk|sed|echo|printf|logger|~|pattern|regex|match|needle|expr")
_COMMAND = re.compile(
    r"(?:^\s*|[|;&(!`]\s*|[$#%>]\s+|\bthen\s+)(?:[efz]?grep|rg|awk|sed|echo|printf|logger)\s+[^|;&]*$"
    r"|[=!]~\s*/[^/]*$"
    r"|\b(?:pattern|regexp?|match(?:es)?|needle|expr)[\"']?\s*[:=]\s*[\"']?[^\"']*$"
)
"""A command, or the setting of one, with the words of a message among its arguments."""
_CALL = re.compile(
    r"(?P<raised>\b(?:raise|throw)\s+(?:new\s+)?)?(?P<name>[\w.:]{1,80})\(\s*"
    r"(?:[\w.&*:>-]{1,40},\s*){0,4}[A-Za-z]{0,2}(?P<quote>[\"'])(?:(?!(?P=quote)).)*$"
)
_BARE = re.compile(
    _START + r"\S{1,200}\.\w{1,4}[:-]\d{1,6}[:-]\s*(?P<quote>[\"'])(?:(?!(?P=quote)).)*$"
)
"""A literal that begins its line, as ``grep`` prints lines of source code."""
_REST_OF_CODE = re.compile(r"(?:,[^\"']{0,200})?\)*\s*(?:from \w+|[;,:\\])?\s*$")
_ITEM = re.compile(r"\s*[,\]]")
"""What follows a literal in a list."""
_PLACEHOLDER = re.compile(r"%(?:[-+0#]?\d{0,3}(?:l{1,2}|z)?[dxu]|[sp])(?![A-Za-z0-9])|%?\{\{|%\{")
"""What source code and templates have where a message has a name or a number."""
_LEADS = re.compile(
    r"(?i)\b(?:if|see|saw|seen|like|about|mentions?|mentioned|reports?|prints?|when|grep|search|searched|for)\s+$"
)
"""Words with which people quote a message that they write about."""
_ADVICE = re.compile(r"^\s*(?:[-*]\s+)?(?:If|When|Whenever|In case)\b")
_EXPLAINS = re.compile(r"\s+(?:means?|indicates?|is (?:printed|shown|logged|harmless))\b")
_LISTED = re.compile(r"\s*(?:\([^)]*\))?:\s+[a-z]")
_NONE = re.compile(r"(?:(?:^|[:,;\])]\s)0|\b(?:[Nn]o|zero|without))\s+(?:\w{1,20}\s+){0,2}$")


def is_other_text(line: str) -> bool:
    """Return whether a line is a traced command, or of a diff, source code, or a document."""
    template = "%" in line or "{{" in line
    return bool(
        _OTHER_TEXT.match(line)
        or (template and _PLACEHOLDER.search(line))
        or "(..., " in line  # a document leaves arguments out
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
        or (line.lstrip().startswith("|") and not found.group().startswith("|") and _is_row(line))
        or (_COMMAND_WORD.search(before) and _COMMAND.search(before))
        or _NONE.search(line[max(0, found.start() - _NEAR) : found.start()])
        or (quotes and (_is_source(line, at) or _is_quoted(line, at)))
    )


def _is_source(line: str, at: int) -> bool:
    """Return whether a literal of source code holds the message."""
    head = line[max(0, at - _NEAR) : at]
    call = _CALL.search(head)
    if call and not call["raised"] and call["name"].endswith(("Error", "Exception", "Interrupt")):
        return False  # Python prints exceptions in this form
    literal = call or _BARE.search(head)
    if not literal:
        return False
    _, closing, rest = line[at:].partition(literal["quote"])
    return bool(closing and _REST_OF_CODE.match(rest))


def _is_quoted(line: str, at: int) -> bool:
    """Return whether a sentence, a table of a document or a list quotes the message."""
    begin = max(line.rfind(quote, max(0, at - _NEAR), at) for quote in _QUOTES)
    if begin < 1:
        return False
    before = line[:begin].rstrip("`")
    if _LEADS.search(before[-40:]):
        return True
    _, closing, rest = line[begin + 1 :].partition(line[begin].translate(_CLOSING))
    if not closing:
        return False
    rest = rest.lstrip("`")
    in_list = before.rstrip()[-1:] in ("[", ",") and _ITEM.match(rest)
    in_table = line[begin] == "`" and before.lstrip().startswith("|")
    listed = before.strip() in ("-", "*") and _LISTED.match(rest)
    return bool(in_list or in_table or listed or _ADVICE.match(line) or _EXPLAINS.match(rest))
