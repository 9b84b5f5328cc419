# SPDX-License-Identifier: MIT
"""The files between the steps of a sweep: JSON lines, one pair of nodes each.

``plan`` writes rows of ``round``, ``a`` and ``b``; ``run`` writes rows of results, which have
``nic``, ``gb_per_s`` and ``state`` as well. In round 0 of the results, both ends are one node, and
``nic`` is a link inside it. Readers ignore keys that they do not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from busbar.errors import BusbarError, file_error
from busbar.parse import numbers

LONGEST_LINE = 1 << 16
LONGEST_NAME = 255
_HINT = "write rows as `busbar sweep plan` and `busbar sweep run` do"
_Row = TypeVar("_Row", "PlannedPair", "MeasuredPair")


class State(StrEnum):
    """How the measurement of a pair ended. Only ``ok`` has a rate."""

    OK = "ok"
    """The bytes arrived as they were sent; ``gb_per_s`` is their rate."""
    WRONG = "wrong"
    """Other bytes arrived than were sent."""
    TIMEOUT = "timeout"
    """The pair did not finish in the time of its round."""
    DEAD = "dead"
    """One end was gone: its process ended, or its node is down."""
    ERROR = "error"
    """The pair program reported another error, or a state that this version does not know."""
    SKIPPED = "skipped"
    """Not started: the sweep was cancelled or out of time, or an end was known to be gone."""


_STATES = {str(state): state for state in State}


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """Two nodes that measure together in a round; in one round a node is in one row at most."""

    round: int
    a: str
    b: str

    def line(self) -> str:
        """Return the row as a line of JSON, with its newline."""
        return json.dumps({"round": self.round, "a": self.a, "b": self.b}) + "\n"


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """What one pair measured in a round."""

    round: int
    a: str
    b: str
    """The other node; empty if the row names none."""
    nic: str | None
    """NIC or rail that both ends used, or link inside a node; None for all NICs at once."""
    gb_per_s: float | None
    """Rate of the pair in 1e9 bytes per second and direction; None unless it is finite and
    above 0, and ``state`` is ``ok``."""
    state: State

    @property
    def inside(self) -> bool:
        """Whether it is of a link inside a node."""
        return self.a == self.b

    @property
    def id(self) -> str:
        """``A-B``, or ``NODE/LINK`` for a link inside a node."""
        return f"{self.a}/{self.nic}" if self.inside else f"{self.a}-{self.b}"

    def line(self) -> str:
        """Return the row as a line of JSON, with its newline."""
        pair = {"round": self.round, "a": self.a, "b": self.b or None, "nic": self.nic}
        return json.dumps({**pair, "gb_per_s": self.gb_per_s, "state": self.state}) + "\n"


@dataclass(frozen=True)
class Results:
    """The rows of a file, and how many lines were cut off."""

    rows: tuple[MeasuredPair, ...]
    cut_lines: tuple[int, ...] = ()
    """Numbers of lines that a killed run did not finish."""

    @property
    def between(self) -> tuple[MeasuredPair, ...]:
        """The rows of two nodes."""
        return tuple(row for row in self.rows if not row.inside)

    @property
    def inside(self) -> tuple[MeasuredPair, ...]:
        """The rows of links inside nodes."""
        return tuple(row for row in self.rows if row.inside)


def read_plan(path: Path) -> list[PlannedPair]:
    """Read a plan; raise ``BusbarError`` with file and line."""
    rows: list[PlannedPair] = []
    busy: set[tuple[int, str]] = set()
    for number, line in _lines(path):
        row = _parsed(line, plan_row, path, number)
        for node in (row.a, row.b):
            if (row.round, node) in busy:
                what = f"node {node} is in round {row.round} twice"
                raise BusbarError(what, where=f"{path}:{number}", hint="pair a node once a round")
            busy.add((row.round, node))
        rows.append(row)
    if not rows:
        raise BusbarError("has no rows", where=str(path), hint=_HINT)
    return rows


def read_results(path: Path) -> Results:
    """Read results, also those of a run that was killed and resumed.

    A line that ends in the middle of a row is left out and counted. If a resumed run appended a
    row to it, that row counts. Raise ``BusbarError`` with file and line for anything else that is
    not a row.
    """
    rows: list[MeasuredPair] = []
    cut: list[int] = []
    for number, line in _lines(path):
        try:
            rows.append(_parsed(line, result_row, path, number))
        except BusbarError:
            appended = _after_a_cut(line)
            if appended is None:
                raise
            cut.append(number)
            if appended:
                rows.append(_parsed(appended, result_row, path, number))
    if not rows:
        raise BusbarError("has no rows", where=str(path), hint=_HINT)
    return Results(tuple(rows), tuple(cut))


def plan_row(value: Mapping[str, Any]) -> PlannedPair:
    """Return a row of a plan; raise ``ValueError`` for what is not one."""
    a, b = _node(value, "a"), _node(value, "b")
    if a == b:
        raise ValueError(f"a and b are the same node {a}")
    return PlannedPair(_round(value), a, b)


def result_row(value: Mapping[str, Any]) -> MeasuredPair:
    """Return a row of results; raise ``ValueError`` for what is not one.

    A row without a partner and a rate that is not positive are accepted and not measured.
    """
    a = _node(value, "a")
    b = _node(value, "b") if value.get("b") is not None else ""
    number = _round(value)
    if a == b and number:
        raise ValueError(f"a and b are the same node {a}, which only round 0 allows")
    state = _state(value.get("state"))
    rate = value.get("gb_per_s")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
        raise ValueError(f"gb_per_s must be a number or null, got {str(rate)[:40]!r}")
    measured = state is State.OK and rate is not None and math.isfinite(rate) and rate > 0 and b
    nic = value.get("nic")
    return MeasuredPair(
        round=number,
        a=a,
        b=b,
        nic=None if nic is None else _node(value, "nic"),
        gb_per_s=float(rate) if measured and rate is not None else None,
        state=state,
    )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers."""
    hint = "name a file that busbar sweep plan or busbar sweep run wrote"
    with file_error("cannot be read", path, hint), path.open("rb") as stream:
        yield from _bounded(stream, path)


def _bounded(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            what = f"a line has more than {LONGEST_LINE:,} bytes"
            raise BusbarError(what, where=f"{path}:{number}", hint=_HINT)
        if line := line.strip(b" \t\r\n\0"):
            yield number, line


def _after_a_cut(line: bytes) -> bytes | None:
    """Return what follows a row that was cut off, or nothing; None if no row was cut off.

    A row has no objects inside, so that a second brace begins another row.
    """
    if not line.startswith(b"{"):
        return None
    start = line.rfind(b"{")
    if start > 0:
        return line[start:]
    return None if line.endswith(b"}") else b""


def _parsed(
    line: bytes, parse: Callable[[Mapping[str, Any]], _Row], path: Path, number: int
) -> _Row:
    try:
        value = numbers.load_json(line.decode())
    except ValueError as error:
        what = f"not a line of JSON: {str(error)[:100]}"
        raise BusbarError(what, where=f"{path}:{number}", hint=_HINT) from error
    try:
        if not isinstance(value, dict):
            raise ValueError(f"a row must be a JSON object, got {type(value).__name__}")
        return parse(value)
    except ValueError as error:
        raise BusbarError(str(error), where=f"{path}:{number}", hint=_HINT) from error


def _round(value: Mapping[str, Any]) -> int:
    number = value.get("round")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= numbers.MOST:
        raise ValueError(f"round must be a whole number of 0 or more, got {str(number)[:40]!r}")
    return number


def _node(value: Mapping[str, Any], key: str) -> str:
    name = value.get(key)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"{key} must be a name, got {str(name)[:40]!r}")
    return name


def _state(word: object) -> State:
    if not isinstance(word, str) or not word:
        raise ValueError(f"state must be a word, got {str(word)[:40]!r}")
    return _STATES.get(word, State.ERROR)
