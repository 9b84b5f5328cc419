# SPDX-License-Identifier: MIT
"""The rows of the table of verdicts: which reading represents others, and its cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from busbar import robust
from busbar.check.names import short_name
from busbar.engine.results import Outcome, Result
from busbar.engine.verdicts import common_end
from busbar.parse.tables import beside
from busbar.plain import Column, Part
from busbar.report.scale import drawable
from busbar.units import format_bytes
from busbar.verdict import STYLES, Verdict, worst
from busbar.words import grouped

_TABLES = beside(__file__)
COLUMNS = tuple(Column(**each) for each in _TABLES["columns"])
_PAIR = re.compile(r"(?P<source>[0-9]{1,4})->(?P<target>[0-9]{1,4})")
_MOST_ENDS = 64
_COPIES: Mapping[str, str] = _TABLES["copies"]
_ENDS = {"D": "GPU", "H": "rank"}
MEMORY = {"D": "GPU memory", "H": "host memory"}
_LONGEST_UNIT = len("GB/s")
_LONGEST_SUFFIX = len("MiB")

Namer = Callable[[Outcome], str]


def namer(outcomes: Iterable[Outcome]) -> Namer:
    """Return the names of checks: with the environment where a check ran in several."""
    places: dict[str, set[str]] = {}
    for outcome in outcomes:
        places.setdefault(outcome.check, set()).add(_place(outcome))

    def name(outcome: Outcome) -> str:
        short = short_name(outcome.check)
        several = len(places.get(outcome.check, ())) > 1
        return f"{short} ({_place(outcome)})" if several and _place(outcome) else short

    return name


def _place(outcome: Outcome) -> str:
    return "+".join(part for part in (outcome.partition, outcome.environment) if part)


def ends_of(row: Result) -> tuple[int, int] | None:
    """Return the two ends of a reading between ranks; None for another reading."""
    found = _PAIR.fullmatch(row.pair)
    if not found or not drawable(row.value):
        return None
    source, target = int(found["source"]), int(found["target"])
    return (source, target) if max(source, target) < _MOST_ENDS else None


def part_of(row: Result) -> str:
    """Return the part of the machine that was measured; empty unless it is a pair of ends."""
    kind, _, index = row.pair.partition(" ")
    if kind in _COPIES:
        return _COPIES[kind].format(index)
    ends = ends_of(row)
    buffers = row.buffers.split()
    if not ends or len(buffers) != 2 or not set(buffers) <= _ENDS.keys():
        return ""
    return " to ".join(f"{_ENDS[b]} {end}" for b, end in zip(buffers, ends, strict=True))


def common_part(row: Result, results: Iterable[Result]) -> str:
    """Return the GPU that all readings as bad as ``row`` share, else the part of ``row``."""
    kind = _COPIES.get(row.pair.partition(" ")[0], "")
    own = (row.metric, row.buffers, row.bytes, row.where)
    like = [
        each
        for each in results
        if (each.metric, each.buffers, each.bytes, each.where) == own
        and (_COPIES.get(each.pair.partition(" ")[0], "") == kind if kind else ends_of(each))
    ]
    bad = [each for each in like if each.verdict is row.verdict]
    if kind and len(bad) == len(like) > 1:
        return kind.format("s").replace("GPU s", f"all {len(bad)} GPUs")
    ends = _ENDS.get(row.buffers[:1], "rank")
    if len(bad) == len(like) > 2:
        return f"every pair of {ends}s"
    end = common_end(map(ends_of, bad), map(ends_of, like))
    return part_of(row) if end is None else f"{ends} {end}"


def collective_of(row: Result) -> str:
    """Return the collective of a reading and its number of GPUs; else empty."""
    series = row.series
    if not series or series.kind != "busbw" or not series.ranks:
        return ""
    return f"{series.operation or series.bench} of {series.ranks} GPUs"


def in_words(row: Result) -> str:
    """Return what a reading is of, without the letters and names that its tool has for it."""
    if row.metric == "correctness":
        return "data intact" if row.verdict is Verdict.PASS else "data"
    memory = " to ".join(dict.fromkeys(MEMORY.get(b, b) for b in row.buffers.split()))
    what = part_of(row) or collective_of(row) or ", ".join(filter(None, (row.pair, memory)))
    return f"{what}, latency".lstrip(", ") if row.metric == "latency" else what


def rows_of_check(name: str, outcome: Outcome) -> list[list[Part]]:
    """Return one row for a whole check, with its worst reading."""
    row = deciding(outcome)
    return [_cells(name, row, outcome.verdict, outcome, reading=in_words(row) if row else "")]


def deciding(outcome: Outcome) -> Result | None:
    """Return the reading that represents a check, the same one in all output.

    Among the readings with the verdict of the check, it is the worst one of the largest size.
    """
    rows = [row for row in outcome.results if row.verdict is outcome.verdict]
    readings = [row for row in rows if row.value is not None] or rows
    return min(readings, key=lambda r: (-(r.bytes or 0), quality(r), speed(r)), default=None)


def rows_of_readings(name: str, outcome: Outcome) -> Iterator[list[Part]]:
    """Yield a row for each metric, buffers and size, of the worst pair."""
    for rows in groups_of(outcome.results):
        verdict = worst(row.verdict for row in rows)
        row = min((row for row in rows if row.verdict is verdict), key=quality)
        yield _cells(name, row, verdict, outcome, count=len(rows))


def groups_of(results: Iterable[Result]) -> list[list[Result]]:
    """Group readings by metric, buffers and size; a result without a size is its own group."""

    def key(result: Result) -> tuple[object, ...]:
        if result.bytes is None:
            return (id(result),)
        return (result.metric, result.buffers, result.bytes)

    ordered = sorted(results, key=lambda result: str(result.metric))
    return list(grouped((key(result), result) for result in ordered).values())


def quality(row: Result) -> float:
    """Return a number that is least for the lowest bandwidth and the longest latency."""
    return robust.quality(row.value, row.typical, latency=row.metric == "latency")


def speed(row: Result) -> float:
    """Return a number that is least for the slowest of several readings without a band."""
    return (row.value or 0.0) * (-1 if row.metric == "latency" else 1)


def _cells(
    name: str,
    row: Result | None,
    verdict: Verdict,
    outcome: Outcome,
    *,
    count: int = 1,
    reading: str = "",
) -> list[Part]:
    ending = (str(verdict), STYLES[verdict])
    if row is None:
        return [name, *[""] * (len(COLUMNS) - 2), ending]
    tools = " ".join(part for part in (row.metric, row.buffers, row.pair) if part)
    where = row.where + (f" (worst of {count})" if count > 1 else "")
    share = row.share_of_limit
    return [
        name,
        reading or tools,
        _size(row.bytes),
        "" if row.value is None else f"{row.value:.4g} {row.unit:{_LONGEST_UNIT}}",
        row.band_text,
        "" if row.shown_limit is None else f"{row.shown_limit:.4g}",
        "" if share is None else f"{share:.0%}",
        where.strip(),
        outcome.partition if outcome.nodes else "",
        ending,
    ]


def _size(count: int | None) -> str:
    """Return the size so that numbers and units of a column are aligned."""
    if not count:
        return ""
    number, _, suffix = format_bytes(count).partition(" ")
    return f"{number} {suffix:{_LONGEST_SUFFIX}}"
