# SPDX-License-Identifier: MIT
"""nccl-tests and rccl-tests: the text table of every version."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from busbar.engine.job_output import Device
from busbar.parse import numbers
from busbar.parse.tables import beside

_TABLES = beside(__file__)
TYPE_BYTES: Mapping[str, int] = _TABLES["types"]
TRIGGERS = tuple(_TABLES["triggers"])
PATTERNS = {
    name: re.compile(expression.replace("{left}", _TABLES["left"]))
    for name, expression in _TABLES["expressions"].items()
}
"""What the lines of each kind have, for `re.Pattern.match`; complaints are searched."""


@dataclass(frozen=True)
class NcclHalf:
    """One half of a row: out of place or in place."""

    time_us: float
    algbw: float
    """GB/s of 1e9 bytes."""
    busbw: float
    wrong: int | None
    """Wrong elements; None where the run did not check (``N/A``)."""
    decimals: tuple[int, int, int] = (2, 2, 2)
    """Decimals that were printed of the three numbers."""


@dataclass(frozen=True)
class NcclRow:
    """One size."""

    nbytes: int
    count: int
    type: str
    redop: str
    root: int | None
    out_of_place: NcclHalf
    in_place: NcclHalf | None


def parse_device(line: str) -> Device | None:
    """A line of the device list; the bus is printed as ``0x0f`` or ``0000:00:06`` by version."""
    match = PATTERNS["device"].match(line)
    if not match:
        return None
    return Device(
        *(numbers.count(match["rank"]), numbers.count(match["pid"]), match["host"]),
        *(numbers.count(match["device"]), match["bus"], match["name"]),
        group=numbers.count(match["group"] or "0"),
    )


def parse_row(text: str, *, errors: bool = False) -> NcclRow | None:
    """A whole row, on one line or joined from its pieces.

    ``errors`` is whether the columns are headed ``error``, as in old versions, which print the
    largest error instead of a count. The oldest have no column for the root either.
    """
    match = PATTERNS["row"].match(text)
    if not match:
        return None
    words = match["numbers"].split()
    # Old versions print no root, and collectives without an operator can leave it blank.
    root = words.pop(0) if len(words) in (5, 9) else ""
    if len(words) not in (4, 8) or (root and not PATTERNS["root"].match(root)):
        return None
    errors = errors or not root
    halves = [_half(words[i : i + 4], errors) for i in range(0, len(words), 4)]
    if halves[0] is None:
        return None
    if (
        not root
        and PATTERNS["root"].match(words[0])
        and not _consistent(numbers.count(match["nbytes"]), halves[0])
    ):
        return None  # the first number is a root, and the last one is still to come
    return NcclRow(
        numbers.count(match["nbytes"]),
        numbers.count(match["count"]),
        match["type"],
        match["redop"] or "",
        numbers.count(root) if root else None,
        halves[0],
        halves[1] if len(halves) > 1 else None,
    )


def _consistent(nbytes: int, half: NcclHalf) -> bool:
    """Whether size and time give the rate."""
    rate = nbytes / half.time_us * 1e-3 if half.time_us > 0 else 0.0
    return half.time_us >= 0 and abs(rate - half.algbw) <= 0.02 * rate + 0.02


def joined(start: str, piece: str) -> tuple[str, ...]:
    """Return what a row can be that goes on in ``piece``.

    Log lines cut a row between two numbers, the edge of a terminal cuts it anywhere.
    """
    apart = f"{start.rstrip()} {piece.strip()}"
    return (apart,) if piece[:1].isspace() else (f"{start.rstrip()}{piece.strip()}", apart)


def _half(words: list[str], errors: bool) -> NcclHalf | None:
    time_us, algbw, busbw = (numbers.real(word) for word in words[:3])
    if time_us is None or algbw is None or busbw is None:
        return None
    if _CUT.fullmatch(words[3]):
        return None
    wrong = None if words[3] == "N/A" else count_wrong(numbers.real(words[3]), errors=errors)
    time, own, bus = map(_decimals, words[:3])
    return NcclHalf(time_us, algbw, busbw, wrong, (time, own, bus))


def _decimals(word: str) -> int:
    """Return the decimals of ``12.34``, and -6 for ``1.2e+07``, as long times are printed."""
    mantissa, _, exponent = word.partition("e+")
    return len(mantissa.partition(".")[2]) - numbers.count(exponent)


_CUT = re.compile(r"[\d.]+e[+-]?\d?")
"""The error at the end of an excerpt that stops within it: ``3e-0`` of ``3e-08``."""
_LARGEST_ERROR = 0.01
"""The closing line counts errors by the type; none of them may be larger."""


def count_wrong(printed: float | None, *, errors: bool) -> int:
    """The count of wrong elements; a part of one, and what is not a number, are wrong as well."""
    if printed is None or not abs(printed) <= numbers.MOST:
        return numbers.MOST
    if errors:
        return int(abs(printed) > _LARGEST_ERROR)
    return math.ceil(abs(printed))


def parse_out_of_bounds(line: str) -> tuple[int, bool] | None:
    """Parse the closing line: how many values are wrong, and whether the tool prints ``OK``."""
    bounds = PATTERNS["out-of-bounds"].match(line)
    if not bounds:
        return None
    count = numbers.count(bounds["count"])
    return (count, count == 0 and bounds["word"].upper() == "OK")


def parse_units(line: str) -> set[tuple[str, ...]]:
    """Return the units of time, algbw and busbw of each half; none for another line."""
    units = PATTERNS["units"].match(line)
    words = units["units"].split() if units else []
    return {tuple(words[i : i + 3]) for i in range(0, len(words), 3)}
