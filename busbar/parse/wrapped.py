# SPDX-License-Identifier: MIT
"""Logs that a collector keeps in a form of its own: Docker, container runtimes, journald, ECS."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from busbar.parse import numbers

_MOST_TRIED = 8
"""Lines of a file that can be damaged before its form shows: it may begin inside a line."""
_LONGEST = 1 << 16
_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
    rb" std(?:out|err) (?P<tag>[FP])(?: |$)",
    re.MULTILINE,
)
_KEYS = {
    "log": ("stream",),
    "MESSAGE": ("__REALTIME_TIMESTAMP", "_HOSTNAME", "PRIORITY", "SYSLOG_IDENTIFIER"),
    "message": ("@timestamp",),
}
"""By the key that has the text of a line: further keys, one of which is beside it."""


Unwrap: TypeAlias = Callable[[bytes], bytes]
"""Returns the lines that a block of a file holds, one for each of its lines."""


def wrapping(head: bytes) -> Unwrap | None:
    """Return what unwraps a file that begins with ``head``; None for plain text."""
    lines = [line for line in head.split(b"\n", _MOST_TRIED)[:_MOST_TRIED] if line.strip()]
    if lines and all(_CRI.match(line) for line in lines[1:-1] or lines):
        return _Cri().block
    for line in lines:
        record = _record(line)
        for key, beside in _KEYS.items():
            if record and key in record and any(each in record for each in beside):
                return _Json(key).block
    return None


def _record(line: bytes) -> Mapping[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        record = numbers.load_json(line)
    except ValueError:  # a line of the program itself
        return None
    return record if isinstance(record, dict) else None


class _Wrapped:
    """Joins the pieces of a long line; every piece but the last becomes an empty line."""

    def __init__(self) -> None:
        self._piece = b""

    def block(self, block: bytes) -> bytes:
        """Return a block of as many lines."""
        return b"\n".join(map(self._line, block.split(b"\n")))

    def _line(self, line: bytes) -> bytes:
        raise NotImplementedError

    def _joined(self, text: bytes, *, ends: bool) -> bytes:
        """Return the line of the file that holds ``text``."""
        if ends and not self._piece:
            return text
        self._piece = (self._piece + text)[:_LONGEST]
        if not ends:
            return b""
        whole, self._piece = self._piece, b""
        return whole


class _Cri(_Wrapped):
    """``2026-11-21T07:23:34.5Z stdout F text`` of containerd and CRI-O."""

    def block(self, block: bytes) -> bytes:
        if not self._piece and b" P " not in block:
            return _CRI.sub(b"", block)
        return super().block(block)

    def _line(self, line: bytes) -> bytes:
        found = _CRI.match(line)
        return self._joined(line[found.end() :], ends=found["tag"] == b"F") if found else line


_PLAIN = re.compile(rb'\{"log":"(?P<text>[^"\\]*)\\n","stream":"\w+","time":"[^"\\]*"\}$')
"""A record of Docker whose text needs no decoding."""


def _of_journal(record: Mapping[str, Any]) -> str:
    """Return time, host and program of a record, as ``journalctl -o short-iso`` writes them."""
    host, program = (record.get(key) for key in ("_HOSTNAME", "SYSLOG_IDENTIFIER"))
    micros = numbers.whole(str(record.get("__REALTIME_TIMESTAMP", ""))[:16])
    if not (micros and isinstance(host, str) and isinstance(program, str)):
        return ""
    return f"{datetime.fromtimestamp(micros * 1e-6, UTC):%Y-%m-%dT%H:%M:%SZ} {host} {program}: "


class _Json(_Wrapped):
    """A record of JSON per line, which has its text under a key."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def _line(self, line: bytes) -> bytes:
        if (plain := _PLAIN.match(line)) and not self._piece:
            return plain["text"]
        record = _record(line)
        text = record.get(self._key) if record else None
        if isinstance(text, list):  # journald writes bytes that are not text as numbers
            text = "".join(chr(each) for each in text if isinstance(each, int) and 0 < each < 256)
        if not isinstance(text, str):
            return line
        if record and self._key == "MESSAGE":
            text = _of_journal(record) + text
        # Docker ends a line with its newline; pieces of a long one have none.
        ends = self._key != "log" or text.endswith("\n")
        text = text.rstrip("\r\n").replace("\n", " | ")
        return self._joined(text.encode("utf-8", "replace"), ends=ends)
