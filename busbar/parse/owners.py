# SPDX-License-Identifier: MIT
"""Whose line of a log it is: a benchmark's, another program's, which stream's of a collector."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import re2

from busbar.parse.launch import parse_command
from busbar.parse.text import decode
from busbar.parse.triggers import options

# ---- what a collector writes before each line of a program
MOST_STREAMS = 32
_HEAD_LINES = 4000
_SHARE = 0.95
"""So many of the first lines have a prefix if a collector writes it."""
_FEWEST = 2
"""Lines that show a stream."""
_TIME = r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* |[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d )?"
_NAME = r"[A-Za-z][\w./@-]{0,200}"
_FORMS = (rf"{_NAME} +\|", rf"\[{_NAME}\]", rf"{_NAME}:", rf"{_NAME} {_NAME}(?:\[\d+\])?:")
_PREFIX = re.compile(
    (rf"{_TIME}(?:std(?:out|err) [FP] )?(?:" + "|".join(f"({f})" for f in _FORMS) + ") ").encode()
)
_VARIES = re.compile(rb"-[a-z0-9]{5}(?![a-z0-9])|[^A-Za-z/ -]+")
"""Parts of the name of a pod, a container or a host that differ between those of one step."""
_NO_NAME = re.compile(
    rb"(?i)(?:trace|debug|info|notice|warn|warning|error|critical|fatal|std(?:out|err)|rank)"
)

# ---- what shows whose line it is
_START = (
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* )?"
    r"(?:[ \t]*\d{1,7}: ?|\[[^\]\s]{1,80}\](?:<\w{1,9}>)?:? ?|[\w./-]{1,80}[:|] ?)?"
)
_TABLE = (
    r"#[ \t]*(?:nThread|(?:nccl|rccl)-tests|OSU[ \t]|Collective test s|Using devices|Rank +\d+ )"
    r'|\{"event": ?"start"'
)
_LAUNCH = (
    r"(?:\$|\++) (?:\w+=\S* )*\S*(?:mpirun|mpiexec|prterun|orterun|srun|torchrun|python3?"
    r"|accelerate|deepspeed|\w_perf|osu_\w+)[ \t]"
)
_WORDS = (
    r"Traceback \(most recent|\b[A-Za-z_.]+(?:Error|Exception): |ProcessGroupNCCL"
    r"|\[rank\d+\]:|\[Rank \d+\]|\bloss\W{0,3}\d"
)
"""Of the runtimes of trainings."""
_PROCESS = (
    r"(?P<nccl>[\w.-]{1,255}:\d{1,18}):\d{1,18}(?::\d{1,18})? ?\[-?\d+\] NCCL"
    r"|\d\] {1,9}\[(?P<ucx>[\w.-]{0,200}[A-Za-z][\w.-]{0,200}:\d{1,18}) {0,9}(?::\d{1,18}){1,2}\]"
)
"""Of NCCL and of UCX."""
_MARK = re2.compile(
    (
        rf"(?m)(?P<command>^{_LAUNCH})"
        rf"|(?P<own>^{_START}(?:{_TABLE}|#[ \t]|\{{\"(?:event|placed)\""
        r"|[ \t]*\d+[ \t]+[\d.]+[ \t]*$"
        r"|[ \t]*\d+[ \t]+\d+[ \t]+(?:u?int|b?fp|b?float|double|half)))"
        rf"|(?P<other>{_WORDS})|{_PROCESS}"
    ).encode(),
    options(),
)
_OTHER = re2.compile(_WORDS.encode(), options())
_COMMAND = re2.compile(rf"(?m)^{_LAUNCH}".encode(), options())
_BENCHMARK = re2.compile(rf"(?m)^{_START}(?:{_TABLE})".encode(), options())
_ANY_PROCESS = re2.compile(_PROCESS.encode(), options())
_RANK = re.compile(
    rb"#[ \t]+Rank +\d+ .{0,80}?Pid +(?P<pid>\d+) on +(?P<host>[\w.-]+)"
    rb'|"event": ?"rank".{0,400}?"host": ?"(?P<name>[^"]*)", ?"pid": ?(?P<number>\d+)'
)
_SCRIPT = re.compile(rb"(?:^|[\s/])(?:torchrun|python3?|accelerate|deepspeed|\S+\.py)\b")
_IN_PYTHON = (b"torch_collectives", b"nccl_monitor", b"OMB Py", b"OMB-Py")
"""Benchmarks in Python: what they print does not differ from what a training prints."""


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
        self._own_shown = False

    def learn(self, text: bytes) -> None:
        """Learn which processes are those of the benchmark."""
        self.benchmark = self.benchmark or bool(_BENCHMARK.search(text))
        self._in_python = self._in_python or any(each in text for each in _IN_PYTHON)
        for rank in _RANK.finditer(text) if self.benchmark else ():
            self._pids.add(rank["pid"] or rank["number"])
            self._hosts.add(_short(rank["host"] or rank["name"]))
        if self._pids and not self._own_shown:
            seen = _ANY_PROCESS.finditer(text)
            self._own_shown = any(_process(each)[1] in self._pids for each in seen)

    def shows_another(self, text: bytes) -> bool:
        """Return whether a block has words or a process of another program than a benchmark."""
        if not self._in_python and _OTHER.search(text):
            return True
        return bool(self._pids) and any(map(self._is_foreign, _ANY_PROCESS.finditer(text)))

    @staticmethod
    def shows_command(text: bytes) -> bool:
        """Return whether a block has a command that launches a program."""
        return _COMMAND.search(text) is not None

    def _is_foreign(self, process: re2.Match) -> bool:
        """Return whether a process is none that the table lists.

        Some tables are posted with lines of other runs of the same test, whose hosts are the same.
        """
        host, pid = _process(process)
        return pid not in self._pids and (self._own_shown or host not in self._hosts)

    def marks(self, text: bytes) -> Iterator[Mark]:
        """Yield the lines of a block that show whose they are."""
        for found in _MARK.finditer(text):
            kind = found.lastgroup.decode()
            begin = text.rfind(b"\n", 0, found.start() + 1) + 1
            if kind == "command":
                end = text.find(b"\n", begin)
                line = text[begin : end if end >= 0 else len(text)]
                command = parse_command(decode(line))
                script = _SCRIPT.search(line)
                kind = "own" if command and command.program else "new" if script else "launch"
            elif not self.benchmark or (kind == "other" and self._in_python):
                continue
            elif kind in ("nccl", "ucx"):
                if not self._pids:
                    continue
                kind = "process" if self._is_foreign(found) else "own"
            yield Mark(begin, kind)


def _short(host: bytes) -> bytes:
    return host.split(b".", 1)[0]


def _process(found: re2.Match) -> tuple[bytes, bytes]:
    host, _, pid = found[found.lastindex].rpartition(b":")
    return _short(host), pid


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
    names = Counter(stream_of(prefix[0]) or b"" for prefix in found)
    return 1 < len(names) <= MOST_STREAMS and all(
        count >= _FEWEST and name and not _NO_NAME.fullmatch(name) for name, count in names.items()
    )
