# SPDX-License-Identifier: MIT
"""The files between the steps of a sweep: JSON lines, one pair of nodes each.

``plan`` writes rows of ``round``, ``a`` and ``b``; ``run`` writes rows of results, which have
``nic``, ``gb_per_s`` and ``state`` as well. Readers ignore keys that they do not know, and rows of
round 0, in which earlier versions measured links inside a node: both of its ends are that node.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from pydantic import BeforeValidator, Field, Strict

from busbar.boundary import regular
from busbar.document import Sealed, parse_document
from busbar.errors import BusbarError, file_error
from busbar.parse import numbers
from busbar.parse.tables import refused
from busbar.seal import sealed

LONGEST_LINE = 1 << 16
LONGEST_NAME = 255
_Row = TypeVar("_Row", "PlannedPair", "MeasuredPair")


class PairState(StrEnum):
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


_STATES = {str(state): state for state in PairState}
Round = Annotated[int, Strict(), Field(ge=0, le=numbers.MOST)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
_NameOrNone = Annotated[str, Field(max_length=LONGEST_NAME), BeforeValidator(lambda v: v or "")]
_Rate = Annotated[float, Strict()] | None
_Share = Annotated[float, Field(ge=0, le=1)]
_StateOrNew = Annotated[
    PairState,
    BeforeValidator(lambda v: _STATES.get(v, PairState.ERROR) if v and isinstance(v, str) else v),
]
_LEFT_OUT = {"b": None, "nic": None, "gb_per_s": None}


@dataclass(frozen=True, slots=True)
class PlannedPair(Sealed):
    """Two nodes that measure together in a round; in one round a node is in one row at most."""

    round: Round
    a: Name
    b: Name

    def line(self) -> str:
        """Return the row as a line of JSON, with its newline."""
        return json.dumps(sealed({"round": self.round, "a": self.a, "b": self.b})) + "\n"


@dataclass(frozen=True, slots=True)
class MeasuredPair(Sealed):
    """What one pair measured in a round."""

    round: Round
    a: Name
    b: _NameOrNone
    """The other node; empty if the row names none."""
    nic: Name | None
    """NIC or rail that both ends used; None for all NICs at once."""
    gb_per_s: _Rate
    """Rate of the pair in 1e9 bytes per second and direction; None unless it is finite and
    above 0, and ``state`` is ``ok``."""
    state: _StateOrNew
    arrived: tuple[float, float] | None = None
    """What arrived at ``a`` and at ``b``, in GB/s, if both are known."""
    resent: tuple[_Share, _Share] | None = None
    """The share of its segments of TCP that ``a`` had to send again, and ``b``."""

    @property
    def id(self) -> str:
        """``A-B``."""
        return f"{self.a}-{self.b}"

    def line(self) -> str:
        """Return the row as a line of JSON, with its newline."""
        pair = {"round": self.round, "a": self.a, "b": self.b or None, "nic": self.nic}
        ends = {"arrived": self.arrived, "resent": self.resent}
        known = {name: value for name, value in ends.items() if value}
        row = {**pair, "gb_per_s": self.gb_per_s, "state": self.state, **known}
        return json.dumps(sealed(row)) + "\n"


@dataclass(frozen=True)
class Results:
    """The rows of a file, and how many lines were cut off."""

    rows: tuple[MeasuredPair, ...]
    cut_lines: tuple[int, ...] = ()
    """Numbers of lines that a killed run did not finish."""


def read_plan(path: Path) -> list[PlannedPair]:
    """Read a plan; raise ``BusbarError`` with file and line."""
    rows: list[PlannedPair] = []
    busy: set[tuple[int, str]] = set()
    for number, line in _lines(path):
        row = _parsed(line, plan_row, path, number)
        for node in (row.a, row.b):
            if (row.round, node) in busy:
                raise refused(__file__, "twice", f"{path}:{number}", node=node, round=row.round)
            busy.add((row.round, node))
        rows.append(row)
    if not rows:
        raise refused(__file__, "no-rows", path)
    return rows


def read_results(path: Path) -> Results:
    """Read results, including results of a run that was killed and resumed.

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
        raise refused(__file__, "no-rows", path)
    return Results(tuple(row for row in rows if row.a != row.b), tuple(cut))


def plan_row(value: object) -> PlannedPair:
    """Return a row of a plan; raise ``ValueError`` for anything else."""
    row = parse_document(PlannedPair, value)
    if row.a == row.b:
        raise ValueError(f"a and b are the same node {row.a}")
    return row


def result_row(value: object) -> MeasuredPair:
    """Return a row of results; raise ``ValueError`` for anything else.

    A row without a partner and a rate that is not positive are accepted and not measured.
    """
    row = parse_document(MeasuredPair, _LEFT_OUT | value if isinstance(value, dict) else value)
    if row.a == row.b and row.round:
        raise ValueError(f"a and b are the same node {row.a}")
    rate = row.gb_per_s
    if rate is None or (row.state is PairState.OK and row.b and math.isfinite(rate) and rate > 0):
        return row
    return replace(row, gb_per_s=None)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers."""
    hint = "pass a file written by busbar sweep run"
    with file_error("cannot be read", path, hint), open(path, "rb", opener=regular) as stream:
        yield from _bounded(stream, path)


def _bounded(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise refused(__file__, "long", f"{path}:{number}", most=LONGEST_LINE)
        if line := line.strip(b" \t\r\n\0"):
            yield number, line


def _after_a_cut(line: bytes) -> bytes | None:
    """Return what follows a row that was cut off, or nothing; None if no row was cut off.

    Rows contain no objects, so a second brace begins another row.
    """
    if not line.startswith(b"{"):
        return None
    start = line.rfind(b"{")
    if start > 0:
        return line[start:]
    return None if line.endswith(b"}") else b""


def _parsed(line: bytes, parse: Callable[[object], _Row], path: Path, number: int) -> _Row:
    try:
        return parse(numbers.load_json(line.decode(), once=True))
    except ValueError as error:
        raise refused(__file__, "other", f"{path}:{number}", error=str(error)[:160]) from error
