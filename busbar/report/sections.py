# SPDX-License-Identifier: MIT
"""The section of one check: pictures, the table of readings, how to repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from busbar.judge.results import Outcome, Result
from busbar.report.bars import Bar, bar
from busbar.report.curve import Curve, curve
from busbar.report.failures import repeat
from busbar.report.matrix import Matrix, ends_of, matrix
from busbar.report.rows import namer, names_text, quality
from busbar.report.snapshot import Snapshot
from busbar.report.trend import Trend
from busbar.site.model import Gpus, Site
from busbar.units import format_bytes
from busbar.verdict import Verdict, worst

_MOST_PICTURES = 12
_MOST_MATRICES = 4
_MOST_BARS = 24
_MOST_TRENDS = 24
_FEWEST_ROWS = 8
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
    headline: Bar | None
    """The worst reading."""
    value: float | None
    """Its value."""
    reading: str
    readings: int
    curves: tuple[Curve, ...]
    bars: tuple[Bar, ...]
    matrices: tuple[Matrix, ...]
    rows: tuple[Result, ...]
    """The worst first."""
    left_out: int
    """Readings that have no place in the table."""
    pictures_left_out: int
    messages: tuple[str, ...]
    causes: tuple[str, ...]
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
    """Draws pairs on the links of the node, if it is known."""
    trends: Mapping[str, Sequence[Trend]] = field(default_factory=dict)
    """The history by check."""
    rows: int = 6000
    """Rows of all tables of readings of one page."""

    @property
    def scheduled(self) -> bool:
        """Whether nodes can be chosen."""
        return self.site is not None and self.site.scheduler != "local"

    def gpus(self, partition: str) -> Gpus | None:
        """Return the GPUs of a node of a partition, if they are known."""
        for each in self.site.partitions if self.site else ():
            if self.site and each.name == partition:
                return self.site.node_types[each.node_type].gpus
        return None


def sections(frame: Frame) -> list[CheckSection]:
    """Return the checks of a run, the worst first."""
    name = namer(frame.run.outcomes)
    ordered = sorted(frame.run.outcomes, key=lambda outcome: -outcome.verdict.severity)
    most = max(_FEWEST_ROWS, frame.rows // max(1, len(ordered)))
    found: dict[str, CheckSection] = {}
    for outcome in ordered:
        short = name(outcome)
        word = re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-")[:_LONGEST_ID] or "check"
        id_, number = f"check-{word}", 1
        while id_ in found:
            number += 1
            id_ = f"check-{word}-{number}"
        found[id_] = _section(id_, short, outcome, frame, most)
    return list(found.values())


def _section(id_: str, name: str, outcome: Outcome, frame: Frame, most: int) -> CheckSection:
    groups = _groups(outcome.results)
    curves = [each for title, rows in groups if (each := curve(title, rows))]
    curves.sort(key=lambda each: -each.worst.severity)
    bars = [bar(title, rows) for title, rows in groups if len({row.bytes for row in rows}) == 1]
    bars.sort(key=lambda each: -each.verdict.severity)
    matrices = list(_matrices(outcome.results, frame.gpus(outcome.partition)))
    matrices.sort(key=lambda each: -each.worst.severity)
    rows = sorted(outcome.results, key=lambda row: (-row.verdict.severity, quality(row)))
    readings = [row for row in rows if row.value is not None]
    trends = frame.trends.get(outcome.check.split(" ")[0], ())
    drawn = ((curves, _MOST_PICTURES), (bars, _MOST_BARS), (matrices, _MOST_MATRICES))
    messages = (row.message for row in rows if row.message and row.value is None)
    return CheckSection(
        id=id_,
        name=name,
        verdict=outcome.verdict,
        where=names_text([row.where for row in rows if row.where]),
        place=", ".join(filter(None, (outcome.partition, outcome.environment))),
        headline=bar("", readings[:1]) if readings else None,
        value=readings[0].value if readings else None,
        reading=_reading(readings[0]) if readings else "",
        readings=len(readings),
        curves=tuple(curves[:_MOST_PICTURES]),
        bars=tuple(bars[:_MOST_BARS]),
        matrices=tuple(matrices[:_MOST_MATRICES]),
        rows=tuple(rows[:most]),
        left_out=max(0, len(rows) - most),
        pictures_left_out=sum(max(0, len(pictures) - many) for pictures, many in drawn),
        messages=tuple(dict.fromkeys(messages))[:_MOST_MESSAGES],
        causes=tuple(dict.fromkeys(cause["id"] for cause in outcome.causes)),
        repeat=repeat(frame.run, outcome, scheduled=frame.scheduled),
        trends=tuple(trends[:_MOST_TRENDS]),
        more_trends=tuple(trends[_MOST_TRENDS:]),
    )


def _reading(row: Result) -> str:
    size = format_bytes(row.bytes) if row.bytes else ""
    return " ".join(filter(None, (row.metric, row.buffers, size)))


def _groups(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    """Return readings that one picture can compare, with its title."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for row in results:
        if row.value is None:
            continue
        series = row.series
        if series:
            what = series["operation"] or (series["bench"] if row.metric == "busbw" else "")
            key = (row.metric, what, row.buffers, series["links"])
        else:
            key = (row.metric, "" if ends_of(row) else row.pair, row.buffers, "")
        found.setdefault(key, []).append(row)
    return [
        (" ".join(filter(None, (m, w, b))) + (f", {links}" if links else ""), rows)
        for (m, w, b, links), rows in found.items()
    ]


def _matrices(results: Iterable[Result], gpus: Gpus | None) -> Iterator[Matrix]:
    found: dict[tuple[str, str, str], list[Result]] = {}
    for row in results:
        if row.value is not None and ends_of(row):
            found.setdefault((row.where, row.metric, row.buffers), []).append(row)
    for (where, metric, buffers), rows in found.items():
        # The size with the worst verdict, of these the largest.
        sizes: dict[int, list[Result]] = {}
        for row in rows:
            sizes.setdefault(row.bytes or 0, []).append(row)
        size = max(sizes, key=lambda n: (worst(r.verdict for r in sizes[n]).severity, n))
        words = (
            metric,
            buffers,
            format_bytes(size) if size else "",
            f"on {where}" if where else "",
        )
        found_matrix = matrix(" ".join(filter(None, words)), sizes[size], gpus)
        if found_matrix:
            yield found_matrix
