# SPDX-License-Identifier: MIT
"""Tell a message that a program prints from one that a text only mentions.

Users paste commands, diffs, source code, manual pages and notes beside output. All of them hold
the same words as a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    # An entry of a list of errors: of a script, of a manual.
    r"|(?:SIGNATURE|REGEX|PATTERN|SUMMARY|DESCRIPTION|TITLE)="
    r"|\s*[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\s+(?:[-:]\s+)?[A-Z][A-Za-z]* [a-z]"
    r"|\s*[*\N{BULLET}]\s+(?=\S)"
    # Strings that source code assigns or lists; an arrow of a sequence diagram.
    r"|\s*(?:(?:const|let|var|final|static|auto|[Ss]tring) )?"
    r"[A-Za-z_][\w.]*\s(?::\s*\w+\s)?\+?:?=\s"
    r"[bfru]{0,2}[\"'`]"
    r"|\s*(?:(?:export|local|readonly|declare) )?[A-Za-z_]\w*=(?:'[^']*'?|\"[^\"]*\"?)\s*\\?$"
    r"|\s*[bfru]{0,2}(?:\"[^\"]*\"|'[^']*')[,\])}:]+[\s({\[]*$"
    r"|\s*(?:[bfru]{1,2}(?:\"[^\"]*\"|'[^']*')|\"[^\"]*\\n\")"
    r"|.{0,200}(?:\"{3}|'{3})"
    # A line of source code that is a string: text of programs is not in quotes as a whole.
    r"|\s+\"[^\"]*\"\s*$"
    # Comments of scripts, and titles.
    r"|\s*#{1,6} ?(?!(?:Library|API headers) version:)[A-Za-z\"'`(*]"
    r"|\s*\w+-{1,2}>>[+-]?\w+:"
    r")"
)
_COMMAND_WORD = re.compile(
    r"grep|rg|awk|sed|echo|printf|logger|~|pattern|regex|match|needle|expr|quote|example|expected|want"
    r"|symptom|signature|title|description|python"
)
_COMMAND = re.compile(
    r"(?:^\s*|[|;&(!`]\s*|[$#%>]\s+|\bthen\s+)(?:[efz]?grep|rg|awk|sed|echo|printf|logger)\s+[^|;&]*$"
    r"|[=!]~\s*/[^/]*$"
    r"|\b(?:pattern|regexp?|match(?:es)?|needle|expr)[\"']?\s*[:=]\s*[\"']?[^\"']*$"
    r"|\b(?:quote|example|expected|want|symptom|signature|title|description)[\"']?\s*[:=]\s*[\"'][^\"']*$"
    r"|(?:^|[$>#%]\s)\s*python3?\s+\S+\.py\s.*[\"'][^\"']*$"
)
"""A command, or the setting of one, with the words of a message among its arguments."""
_CALL = re.compile(
    r"(?P<raised>\b(?:raise|throw)\s+(?:new\s+)?)?(?P<name>[\w.:]{1,80})\(\s*"
    r"(?:[\w.&*:>()\[\]-]{1,40},\s*){0,4}[A-Za-z]{0,2}(?P<quote>[\"'])(?:(?!(?P=quote)).)*$"
)
_BARE = re.compile(
    _START + r"\S{1,200}\.\w{1,4}[:-]\d{1,6}[:-]\s*(?P<quote>[\"'])(?:(?!(?P=quote)).)*$"
)
"""A literal that begins its line, as ``grep`` prints lines of source code."""
_FIELD = re.compile(r"[{(,]\s*[A-Za-z_]\w*:\s+(?:[A-Za-z_]\w*\{[A-Za-z_]\w*:\s*)?[\"'`][^\"'`]*$")
"""A field of a structure in source code; the names of JSON are in quotes."""
_RAISED = re.compile(r"^\s*(?:raise|except)\s+[\w.]*$")
"""Python, which prints what it raised in another line."""
_LEVEL = re.compile(r"\b(?:WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b")
_TRAILING_COMMENT = re.compile(r"[\w)\]\"';]\s+(?:#|//)\s[^\"'`]*$")
_REST_OF_CODE = re.compile(r"(?:,[^\"']{0,200})?\)*\s*(?:(?:from \w+|[;,:\\])\s*)?$")
_ITEM = re.compile(r"\s*[,\]]")
"""What follows a literal in a list."""
_TUPLE = re.compile(r"(?<!\w)\(\s*$")
"""Before the first literal of a tuple; a name before the parenthesis makes a call."""
_PLACEHOLDER = re.compile(
    r"%(?:[-+0#]?\d{0,3}(?:l{1,2}|z)?[dxu]|[sp])(?![A-Za-z0-9])|%?\{\{|%\{"
    r"|:\.\.\.\)|\b(?:[Ss]tep|[Jj]ob|pid|[Rr]ank|[Tt]ask)(?: |=|Id=)X{3,}\b"
)
"""What source code and templates have where a message has a name or a number."""
_LEADS = re.compile(
    r"(?i)\b(?:if|see|saw|seen|like|about|mentions?|mentioned|reports?|prints?|when|grep|search|searched|for)\s+$"
)
"""Words with which people quote a message that they write about."""
_ADVICE = re.compile(r"^\s*(?:[-*]\s+)?(?:If|When|Whenever|In case)\b")
_CONDITION = re.compile(r"\s*(?:[->]\s+)?(?:If|When|Whenever|Unless|In case|Once)\b[^:\[\]]*$")
_EXPLAINS = re.compile(r"\s+(?:means?|indicates?|is (?:printed|shown|logged|harmless))\b")
_QUOTED_EVENT = re.compile(
    r"[\"'`] (?:is|are|was|were|gets?) (?:thrown|raised|printed|shown|logged|reported|returned)\b"
)
_LISTED = re.compile(r"\s*(?:\([^)]*\))?:\s+[a-z]")
_STOP_WORDS = re.compile(
    r"(?<![\w./:=<>-])(?i:an?|the|and|or|but|not|if|when|which|that|this|these|those|it|its|we|you"
    r"|they|your|our|is|are|was|were|be|been|has|have|had|does|do|did|will|would|can|could|may|might"
    r"|should|of|in|on|to|for|with|by|from|as|at|than|after|before|about|so)(?=[\s,.;!?)]|$)"
)
"""Words of sentences; a program's message has few of them before what it says."""
_IN_A_SENTENCE = 6
"""So many before a message make it a part of a sentence. Launchers wrap their sentences before."""
_AROUND_A_QUOTE = 2
"""So many around a message in backquotes make it a quotation."""
_INTRODUCES = re.compile(
    r"(?i)(?<!can )\bsimilar to\b|\bsuch as the following\b|\bone of (?:these|the following):"
    r"|\bfor (?:example|instance)\b.{0,60}:\s*$"
    r"|\bmessages? (?:to be (?:displayed|shown|printed) )?(?:is|are) (?:as follows|likely|usually"
    r"|typically|often|probably|also)\b"
    r"|\b(?:may|might|will|would)\b[^.:]{0,60}\b(?:see|show|appear|print|report|produce|display|log"
    r"|receive|return|contain|get|encounter|look like)\b"
    r"|\b(?:may|might|would) be an? \w"
    r"|\b(?:can|sometimes)\b[^.:]{0,40}\b(?:appear|occur|print|produce|return|fail with)\b"
    r"|\b(?:will|would|may|might|can) be"
    r" (?:thrown|raised|printed|shown|reported|displayed|returned|logged)\b"
    r"|\byou(?:'ll| will| may| might) (?:see|get|find)\b"
)
"""Sentences after which a document shows what a program prints."""
_OF_A_PERSON = re.compile(r"\b(?:I|I'm|I've|my|me|we|We|our)\b")
"""Who writes so tells what happened."""
INTRODUCED = 8
"""Lines below such a sentence that belong to it."""
_ENUMERATES = re.compile(r"[\w.]+(?:, [\w.]+){0,5},? etc\b")
_EXCEPTION = re.compile(r"\w*(?:Error|Exception)\b")
_WORDS_BEFORE_AN_EXCEPTION = 2
"""So many make the name of an exception a part of a sentence: Python begins a line with it."""
_ANCHOR = "[](){#"
"""How a page for MkDocs begins that others refer to."""
_TITLE = re.compile(r"\s*#{1,2} [^\n]+\n")
_HEADING = re.compile(r"^[ \t\r]*\n#{2,4} (?P<text>.*)", re.MULTILINE)
"""After an empty line: the banners of prologs begin every line with hash marks."""
_HEADINGS = 4
"""So many below a title make a document."""
_REPORTS = re.compile(
    r"(?i)\?|describ|reproduc|expect|actual|background|version|environment$|\blogs?\b"
    r"|\bbug\b|\bsteps\b|happen|symptom|traceback"
)
"""Headings of a report of an error, which holds output."""
_DIRECTIVE = re.compile(r"^ *\.\. (?:_[\w .-]+:|[\w-]+::)", re.MULTILINE)
_DIRECTIVES = 3
"""So many lines of reStructuredText make a document: no program prints them."""
_TABLE = re.compile(r"^[ \t]*#[ \t]+(?:OSU |nThread \d|.*\bout-of-place\b)", re.MULTILINE)
_LICENSED = re.compile(
    r"\A(?:[^\n]*\n){0,9}?\s*(?:#|//|/\*|\*|\"{3})[^\n]*(?:Copyright|SPDX-License)"
)
_DECLARES = re.compile(
    r"^(?:import \w|from [\w.]+ import |#include [<\"]|package \w+;?$)", re.MULTILINE
)
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
        or _QUOTED_EVENT.search(line, at)
        or _TRAILING_COMMENT.search(before)
        or _RAISED.search(line[:at])
        or _ENUMERATES.match(line, at)
        or _is_exception_in_a_sentence(found)
        or _is_in_a_sentence(line, found.start("text" if "text" in found.re.groupindex else 0))
        or (line.lstrip().startswith("|") and not found.group().startswith("|") and _is_row(line))
        or (_COMMAND_WORD.search(before) and _COMMAND.search(before))
        or _NONE.search(line[max(0, found.start() - _NEAR) : found.start()])
        or (quotes and (_is_source(line, at) or _is_quoted(line, at)))
    )


def is_document(head: str) -> bool:
    """Return whether a file begins as a manual with titles, or as source code with a licence.

    Both show messages that no program printed in this run. A table of a benchmark in it is of a
    run, so it is read.
    """
    if _TABLE.search(head):
        return False
    if _LICENSED.match(head):
        return _DECLARES.search(head) is not None
    if head.startswith(_ANCHOR) or len(_DIRECTIVE.findall(head)) >= _DIRECTIVES:
        return True
    headings = _HEADING.findall(head)
    return (
        len(headings) >= _HEADINGS
        and _TITLE.match(head) is not None
        and not any(_REPORTS.search(heading) for heading in headings)
    )


def is_introduced(before: Sequence[str]) -> bool:
    """Return whether a document shows the line after ``before`` as what a program can print."""
    nearest = True
    for line in reversed(before[-INTRODUCED:]):
        text = line.strip()
        if not text or text.startswith(("```", "~~~", "..")):
            continue
        ends = text.rstrip("`*").endswith(":")
        if (nearest or ends) and _INTRODUCES.search(text) and not _OF_A_PERSON.search(text):
            return True
        nearest = False
    return False


def _is_in_a_sentence(line: str, at: int) -> bool:
    """Return whether the words before a message are a sentence that goes on with it."""
    lead = line[:at]
    return "=" not in lead and (
        (len(_STOP_WORDS.findall(lead)) >= _IN_A_SENTENCE and not _LEVEL.search(lead))
        or _CONDITION.match(lead) is not None
    )


def _is_exception_in_a_sentence(found: re.Match[str]) -> bool:
    """Return whether a message begins with the name of an exception that a text is about."""
    start = found.start("text" if "text" in found.re.groupindex else 0)
    lead = found.string[:start].rstrip()
    return (
        _EXCEPTION.match(found.string, start) is not None
        and lead[-1:].islower()
        and len(_STOP_WORDS.findall(found.string[:start])) >= _WORDS_BEFORE_AN_EXCEPTION
        and not _OF_A_PERSON.search(lead)
    )


def _is_source(line: str, at: int) -> bool:
    """Return whether a literal of source code holds the message."""
    head = line[max(0, at - _NEAR) : at]
    call = _CALL.search(head)
    if call and not call["raised"] and call["name"].endswith(("Error", "Exception", "Interrupt")):
        return False  # Python prints exceptions in this form
    if _FIELD.search(head):
        return True
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
    if line[begin] == "`" and len(_STOP_WORDS.findall(before + rest)) >= _AROUND_A_QUOTE:
        return True
    in_list = before.rstrip()[-1:] in ("[", ",") and _ITEM.match(rest)
    in_tuple = _TUPLE.search(before) and _ITEM.match(rest)
    in_table = line[begin] == "`" and before.lstrip().startswith("|")
    listed = before.strip() in ("-", "*") and _LISTED.match(rest)
    return bool(
        in_list or in_tuple or in_table or listed or _ADVICE.match(line) or _EXPLAINS.match(rest)
    )
