# SPDX-License-Identifier: MIT
"""The section of one check: pictures, the table of readings, how to repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from busbar.check.snapshot import Snapshot
from busbar.engine.reading import Cause
from busbar.engine.results import Outcome, Result
from busbar.history.record import metric_of
from busbar.report.curve import BarPicture, CurvePicture, bar, curve
from busbar.report.failures import repeat
from busbar.report.headline import of_reading
from busbar.report.matrix import MatrixPicture, matrix
from busbar.report.rows import deciding, ends_of, in_words, namer, quality, speed
from busbar.report.trend import Trend
from busbar.site.model import Site
from busbar.units import format_bytes
from busbar.verdict import Verdict, worst
from busbar.words import grouped, names_text

_MOST_CURVES = 12
_MOST_MATRICES = 4
_MOST_BARS = 24
_MOST_TRENDS = 24
_FEWEST_ROWS = 8
_MOST_ROWS = 2500
_MOST_MARKS = 6000
"""Marks of all pictures of one page, of some 200 bytes each."""
_MOST_MESSAGES = 6
_LONGEST_ID = 60


@dataclass(frozen=True)
class CheckSection:
    """All that a page shows of one check."""

    id: str
    name: str
    verdict: Verdict
    where: str
    place: str
    """Partition and environment."""
    headline: BarPicture | None
    """The worst reading."""
    value: float | None
    """Its value."""
    reading: str
    missed: str
    """By how much the worst reading misses its band or limit; empty if it does not."""
    readings: int
    curves: tuple[CurvePicture, ...]
    bars: tuple[BarPicture, ...]
    matrices: tuple[MatrixPicture, ...]
    rows: tuple[Result, ...]
    """The worst first."""
    left_out: int
    """Readings that have no place in the table."""
    pictures_left_out: int
    messages: tuple[str, ...]
    causes: tuple[Cause, ...]
    repeat: str
    trends: tuple[Trend, ...] = ()
    """The history: what became worse is first."""
    more_trends: tuple[Trend, ...] = ()
    """Those that have a line of the table only."""


@dataclass(frozen=True)
class Frame:
    """What the sections of one page share."""

    run: Snapshot
    site: Site | None
    """Says whether nodes can be chosen, if it is known."""
    trends: Mapping[str, Sequence[Trend]] = field(default_factory=dict)
    """The history by check, as ReFrame shows it."""
    inline: bool = True
    """Whether all sections are in one file, which then has the worst of them in full."""

    @property
    def scheduled(self) -> bool:
        """Whether nodes can be chosen."""
        return self.site is not None and self.site.scheduler != "local"

    def trends_of(self, check: str, rows: Iterable[Result]) -> tuple[Trend, ...]:
        """Return the history of a check's series; the history ignores parameters of checks."""
        base = check.partition(" ")[0]
        if base == check:
            return tuple(self.trends.get(check, ()))
        measured = {
            f"{metric_of(row.metric, row.pair, row.buffers, row.bytes, row.series)} {row.where}"
            for row in rows
            if row.bytes is not None
        }
        of_base = (one for one in self.trends.get(base, ()) if one.metric in measured)
        return (*self.trends.get(check, ()), *of_base)


@dataclass
class _Room:
    """What still fits on a page of less than 3 MB; the worst checks come first."""

    marks: int = _MOST_MARKS
    rows: int = _MOST_ROWS

    def take(self, marks: int) -> bool:
        """Return whether a picture fits, and count it."""
        fits = marks <= self.marks
        self.marks -= marks if fits else 0
        return fits

    def take_row(self) -> bool:
        """Return whether a row of a table fits, and count it."""
        self.rows -= 1
        return self.rows >= 0


def sections(frame: Frame) -> list[CheckSection]:
    """Return the checks of a run, the worst first."""
    name = namer(frame.run.outcomes)
    ordered = sorted(frame.run.outcomes, key=lambda outcome: -outcome.verdict.severity)
    fair = _MOST_ROWS // max(1, len(ordered))
    room = _Room()
    most = max(_FEWEST_ROWS, fair) if frame.inline else room.rows
    found: dict[str, CheckSection] = {}
    for outcome in ordered:
        short = name(outcome)
        word = re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-")[:_LONGEST_ID] or "check"
        id_, number = f"check-{word}", 1
        while id_ in found:
            number += 1
            id_ = f"check-{word}-{number}"
        own = room if frame.inline else _Room()
        found[id_] = _section(frame, outcome, own, most, (id_, short))
    return list(found.values())


def _section(
    frame: Frame, outcome: Outcome, room: _Room, most: int, names: tuple[str, str]
) -> CheckSection:
    """Return the section of a check, by id and name, with ``most`` rows in its table."""
    groups = _groups(outcome.results)
    curves = [each for title, rows in groups if (each := curve(title, rows))]
    curves.sort(key=lambda each: -each.worst.severity)
    bars = [bar(title, rows) for title, rows in groups if len({row.bytes for row in rows}) == 1]
    bars.sort(key=lambda each: -each.verdict.severity)
    matrices = _worst_of_each(_matrices(outcome.results))
    rows = sorted(outcome.results, key=_badness)
    readings = [row for row in rows if row.value is not None]
    worst_row = deciding(outcome)
    headline = worst_row if worst_row and worst_row.value is not None else None
    trends = frame.trends_of(outcome.check, rows)
    shown_matrices = [
        each for each in matrices[:_MOST_MATRICES] if room.take(len(each.cells) // 9)
    ]
    shown_curves = [each for each in curves[:_MOST_CURVES] if room.take(len(each.marks) + 8)]
    shown_bars = [each for each in bars[:_MOST_BARS] if room.take(len(each.dots) + 4)]
    shown_rows = [row for row in rows[:most] if room.take_row()]
    shown_trends = [
        each
        for each in trends[:_MOST_TRENDS]
        if each.fills_a_picture and room.take(2 * len(each.dots))
    ]
    pictures = len(matrices) + len(curves) + len(bars)
    messages = (row.message for row in rows if row.message and row.value is None)
    return CheckSection(
        id=names[0],
        name=names[1],
        verdict=outcome.verdict,
        where=names_text([row.where for row in rows if row.where]),
        place=", ".join(filter(None, (outcome.partition, outcome.environment))),
        headline=bar("", [headline]) if headline else None,
        value=headline.value if headline else None,
        reading=_reading(headline or next(iter(rows), None)),
        missed=of_reading(headline, outcome, names[1]),
        readings=len(readings),
        curves=tuple(shown_curves),
        bars=tuple(shown_bars),
        matrices=tuple(shown_matrices),
        rows=tuple(shown_rows),
        left_out=len(rows) - len(shown_rows),
        pictures_left_out=pictures - len(shown_matrices) - len(shown_curves) - len(shown_bars),
        messages=tuple(dict.fromkeys(messages))[:_MOST_MESSAGES],
        causes=outcome.causes,
        repeat=repeat(frame.run, outcome, scheduled=frame.scheduled),
        trends=tuple(shown_trends),
        more_trends=tuple(each for each in trends if each not in shown_trends),
    )


def _badness(row: Result) -> tuple[float, ...]:
    """Return a key that sorts the worst first; then the largest and slowest."""
    return (-row.verdict.severity, round(quality(row), 2), -(row.bytes or 0), speed(row))


def _reading(row: Result | None) -> str:
    if not row:
        return ""
    return ", ".join(filter(None, (in_words(row), format_bytes(row.bytes) if row.bytes else "")))


def _groups(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """Return readings that one picture can compare, with its title."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for row in results:
        if row.value is None:
            continue
        series = row.series
        if series:
            what = series.operation or (series.bench if row.metric == "busbw" else "")
            key = (row.metric, what, row.buffers, series.links)
        else:
            key = (row.metric, "" if ends_of(row) else row.pair, row.buffers, "")
        found.setdefault(key, []).append(row)
    return [
        (" ".join(filter(None, (m, w, b))) + (f", {links}" if links else ""), rows)
        for (m, w, b, links), rows in found.items()
    ]


def _worst_of_each(matrices: Iterable[tuple[str, MatrixPicture]]) -> list[MatrixPicture]:
    """Return all matrices with a problem, and of each kind without any the worst one."""
    kept = []
    for several in grouped(matrices).values():
        several.sort(key=lambda each: (-each.worst.severity, each.least))
        bad = [each for each in several if each.worst.is_problem]
        kept += bad or several[:1]
    return sorted(kept, key=lambda each: (-each.worst.severity, each.least))


def _matrices(results: Iterable[Result]) -> Iterator[tuple[str, MatrixPicture]]:
    pairs = [row for row in results if row.value is not None and ends_of(row)]
    found = grouped(((row.where, row.metric, row.buffers), row) for row in pairs)
    for (where, metric, buffers), rows in found.items():
        # The size with the worst verdict, of these the largest.
        sizes = grouped((row.bytes or 0, row) for row in rows)
        size = max(sizes, key=lambda n: (worst(r.verdict for r in sizes[n]).severity, n))
        place = f"on {where}" if where else ""
        words = (metric, buffers, format_bytes(size) if size else "", place)
        if drawn := matrix(" ".join(filter(None, words)), sizes[size]):
            yield f"{metric} {buffers}", drawn
