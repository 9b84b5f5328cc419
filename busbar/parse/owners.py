# SPDX-License-Identifier: MIT
"""Whose line of a log it is: a benchmark's, another program's, which stream's of a collector."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import re2

from busbar.parse.launch import parse_command
from busbar.parse.tables import beside
from busbar.parse.text import decode
from busbar.parse.triggers import options

# ---- what a collector writes before each line of a program
MOST_STREAMS = 32
_HEAD_LINES = 4000
_SHARE = 0.95
"""So many of the first lines have a prefix if a collector writes it."""
_TABLES = beside(__file__)
_START, _TABLE, _LAUNCH, _WORDS, _ROWS = (
    _TABLES[name] for name in ("start", "table", "launch", "words", "rows")
)
_PREFIX, _VARIES, _NO_NAME, _UCX, _NCCL, _RANK, _SCRIPT = (
    re.compile(_TABLES[name].encode())
    for name in ("prefix", "varies", "no-name", "ucx", "nccl", "rank", "script")
)
_IN_PYTHON = (b"torch_collectives", b"nccl_monitor", b"OMB Py", b"OMB-Py")
"""Benchmarks in Python: what they print does not differ from what a training prints."""
_OWN = rf"(?m)^{_START}(?:{_TABLE}|#[ \t]|\{{\"(?:event|placed)\"|{_ROWS})"
_OWN_LINE = re2.compile(_OWN.encode(), options())
_OTHER = re2.compile(_WORDS.encode(), options())
_COMMAND = re2.compile(rf"(?m)^{_LAUNCH}".encode(), options())
_TABLE_WORDS = re2.compile(_TABLE.encode(), options())
_PYTHON = "|".join(each.decode() for each in _IN_PYTHON)
_BEGINNING = re2.compile(rf"{_TABLE}|(?m:^{_LAUNCH})|{_PYTHON}".encode(), options())
_BEGINNING_OR_WORDS = re2.compile(
    rf"{_TABLE}|(?m:^{_LAUNCH})|{_PYTHON}|{_WORDS}".encode(), options()
)
_BENCHMARK = re2.compile(rf"(?m)^{_START}(?:{_TABLE})".encode(), options())
_MOST_PROCESSES = 4096


class Mark(NamedTuple):
    """The beginning of a line that shows whose it is."""

    at: int
    kind: str
    """``own`` (of the benchmark), ``other``, ``process`` (one that the benchmark does not list),
    ``new`` (a command that starts another program) or ``launch`` (one that starts a program that
    the following lines show)."""


class Owners:
    """What a log has shown of its programs so far."""

    def __init__(self) -> None:
        self.benchmark = False
        """Whether a table or an event of a benchmark was printed."""
        self._in_python = False
        self._pids: set[bytes] = set()
        self._hosts: set[bytes] = set()
        self._own: set[bytes] = set()
        """Processes that the table lists, as they are before a line."""
        self._foreign: set[bytes] = set()
        self._known: tuple[int, int, bool] | None = None
        self._leaves: dict[str, re2.Expression] = {}
        """By whose line the last one is: what the first line of another can have."""

    def learn(self, text: bytes) -> None:
        """Learn which processes belong to the benchmark."""
        self.benchmark = self.benchmark or has_table(text)
        self._in_python = self._in_python or any(each in text for each in _IN_PYTHON)
        listed = self.benchmark and (b" Pid " in text or b'"pid"' in text)
        for line in _with_pids(text) if listed else ():
            if rank := _RANK.search(line):
                self._pids.add(rank["pid"] or rank["number"])
                self._hosts.add(_short(rank["host"] or rank["name"]))
        seen = _processes(text) if self._pids else set()
        self._own |= {each for each in seen if each.rpartition(b":")[2] in self._pids}
        # Some tables are posted with lines of other runs of the same test, on the same hosts.
        self._foreign |= {
            each
            for each in seen - self._own
            if self._own or _short(each.rpartition(b":")[0]) not in self._hosts
        }
        known = len(self._own), len(self._foreign), self._in_python
        if self.benchmark and known != self._known:  # RE2 fills its cache as it searches
            self._known = known
            self._leaves = {
                "own": _any_of("" if self._in_python else _WORDS, self._foreign),
                "other": _any_of(_OWN, self._own),
            }

    def shows_nothing(self, text: bytes, *, words: bool) -> bool:
        """Return whether no line of a block shows whose it is; ``words`` of trainings do.

        One search of what most blocks lack is faster than one search for each kind.
        """
        found = _BEGINNING_OR_WORDS if words else _BEGINNING
        return not self.benchmark and found.search(text) is None

    def marks(self, text: bytes, last: str) -> Iterator[Mark]:
        """Yield the lines of a block at which the program changes.

        ``last`` is ``own`` or ``other``; empty before the first line of a file.
        """
        at = 0
        while mark := self._next(text, at, last):
            end = _end(text, mark.at)
            if mark.kind == "launch":
                following = self._next(text, end, "") if self.benchmark else None
                mark = Mark(mark.at, following.kind if following else "new")
            yield mark
            at, began, last = end, last == "own", "own" if mark.kind == "own" else "other"
            # A row of a table can be cut by the line of another process, and what follows in the
            # next line shows nothing.
            if mark.kind == "process" and began and self._leaves["other"].search(text, at):
                last = "own"
                yield Mark(at, last)

    def _next(self, text: bytes, at: int, last: str) -> Mark | None:
        """Return the next line that shows that it is not of the same program as the last."""
        searches = [self._leaves[each] for each in self._leaves if last in ("", each)]
        searches = searches or [_COMMAND]
        while at < len(text) and (
            hits := [hit.start() for each in searches if (hit := each.search(text, at))]
        ):
            begin = text.rfind(b"\n", 0, min(hits) + 1) + 1
            kind = self._kind(text[begin : _end(text, begin)].rstrip(b"\n"))
            if kind and kind != last:
                return Mark(max(begin, at), kind)
            at = _end(text, max(begin, at))
        return None

    def _kind(self, line: bytes) -> str:
        if _COMMAND.search(line):
            command = parse_command(decode(line))
            if command and command.program:
                return "own"
            return "new" if _SCRIPT.search(line) else "launch"
        if _OWN_LINE.search(line):
            return "own"
        if not self._in_python and _OTHER.search(line):
            return "other"
        processes = _processes(line)
        if processes & self._foreign:
            return "process"
        return "own" if processes & self._own else ""


def _end(text: bytes, at: int) -> int:
    """Return where the line after the one at a place begins."""
    return (text.find(b"\n", at) + 1) or len(text)


def _any_of(words: str, processes: set[bytes]) -> re2.Expression:
    parts = [f"(?m:^{_LAUNCH})", *([f"(?:{words})"] if words else [])]
    parts += [
        re2.escape(each.decode("latin-1") + ":") for each in sorted(processes)[:_MOST_PROCESSES]
    ]
    return re2.compile("|".join(parts).encode("latin-1"), options())


def _with_pids(text: bytes) -> set[bytes]:
    """Return the different lines that can list a process of a benchmark."""
    lines = set()
    for word in (b" Pid ", b'"pid"'):
        end = 0
        while (at := text.find(word, end)) >= 0:
            end = _end(text, at)
            lines.add(text[text.rfind(b"\n", 0, at) + 1 : end])
    return lines


def _processes(text: bytes) -> set[bytes]:
    """Return ``host:pid`` of the processes of which NCCL and UCX write before a line."""
    if b"NCCL" not in text and b"UCX" not in text:
        return set()
    # Few lines begin in a way of their own up to the device, so few are searched.
    starts = {line.split(b" [", 1)[0] for line in text.split(b"\n")}
    found = {
        nccl["process"] for start in starts if (nccl := _NCCL.search(start.rpartition(b" ")[2]))
    }
    return found | set(_UCX.findall(text) if b"UCX" in text else ())


def has_table(text: bytes) -> bool:
    """Return whether a table or an event of a benchmark begins in a text."""
    # What no line needs to be looked at for is searched first.
    return bool(_TABLE_WORDS.search(text) and _BENCHMARK.search(text))


def has_words(text: bytes) -> bool:
    """Return whether a text has words of a training, which no benchmark prints."""
    return _OTHER.search(text) is not None


def _short(host: bytes) -> bytes:
    return host.split(b".", 1)[0]


def stream_of(line: bytes) -> bytes | None:
    """Return the name that a collector writes before a line, without what varies in a step."""
    prefix = _PREFIX.match(line)
    if not prefix:
        return None
    return _VARIES.sub(b"", prefix[prefix.lastindex or 0]).strip(b" -/")


def has_streams(text: bytes) -> bool:
    """Return whether a collector writes the names of several programs before all lines."""
    lines = [line for line in text.split(b"\n", _HEAD_LINES)[:_HEAD_LINES] if line.strip()]
    found = [prefix for prefix in map(_PREFIX.match, lines) if prefix]
    if len(found) < _SHARE * len(lines) or len({prefix.lastindex for prefix in found}) != 1:
        return False
    names = {stream_of(prefix[0]) or b"" for prefix in found}
    # Without a benchmark there is nothing to tell another program from.
    return 1 < len(names) <= MOST_STREAMS and (
        all(name and not _NO_NAME.fullmatch(name) for name in names) and has_table(text)
    )
