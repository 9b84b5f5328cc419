# SPDX-License-Identifier: MIT
"""Print the table of verdicts on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from busbar.judge.results import Outcome, Result
from busbar.terminal import Table, Terminal, Text
from busbar.units import format_bytes
from busbar.verdict import STYLES, Verdict, worst

_MAX_SHOWN = 3
"""Failures of one size that are printed."""


def print_verdicts(outcomes: Sequence[Outcome], out: Terminal) -> None:
    """Print one row per size and buffers (of the worst pair), then the reasons, then the notes."""
    table = Table(box=None, pad_edge=False)
    for name in ("check", "what", "where"):
        table.add_column(name, no_wrap=True)
    for name in ("measured", "band", "limit", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        for rows in _groups(outcome.results):
            table.add_row(*_cells(rows))
    out.show(table)
    for outcome in outcomes:
        _print_reasons(outcome, out)
    _print_notes(outcomes, out)


def _groups(results: Iterable[Result]) -> Iterable[list[Result]]:
    """Group readings by metric, buffers and size; a result without a size is its own group."""

    def key(result: Result) -> tuple[object, ...]:
        if result.bytes is None:
            return (id(result),)
        return (result.metric, result.buffers, result.bytes)

    ordered = sorted(enumerate(results), key=lambda item: (str(item[1].metric), item[0]))
    groups: dict[tuple[object, ...], list[Result]] = {}
    for _, result in ordered:
        groups.setdefault(key(result), []).append(result)
    return groups.values()


def _cells(rows: list[Result]) -> list[str | Text]:
    verdict = worst(row.verdict for row in rows)
    row = min((row for row in rows if row.verdict is verdict), key=_quality)
    what = " ".join(
        part
        for part in (
            row.metric,
            row.pair if row.metric == "correctness" else "",
            row.buffers,
            format_bytes(row.bytes) if row.bytes else "",
        )
        if part
    )
    pair = "" if row.metric == "correctness" else row.pair
    where = " ".join(part for part in (row.where, pair) if part)
    if len(rows) > 1:
        where += f" (worst of {len(rows)})"
    unit = "us" if row.metric == "latency" else "GB/s"
    numbers = ["", "", "", ""]
    if row.value is not None:
        numbers[0] = f"{row.value:.4g} {unit}"
    if row.low is not None and row.high is not None and row.limit is not None:
        numbers[1] = f"{row.low:.4g} .. {row.high:.4g}"
        numbers[2] = f"{row.limit:.4g}"
    if row.share_of_limit is not None:
        numbers[3] = f"{row.share_of_limit:.0%}"
    return [row.check, what, where, *numbers, Text(verdict, STYLES[verdict])]


def _quality(row: Result) -> float:
    """Return a number that is least for the lowest bandwidth and the longest latency."""
    if row.value is None or not row.typical:
        return 0.0
    share = row.value / row.typical
    return -share if row.metric == "latency" else share


def _print_reasons(outcome: Outcome, out: Terminal) -> None:
    for verdict, message in _reasons(outcome.results):
        out.line((verdict, STYLES[verdict]), f" {outcome.check}: {message}")
    for cause in outcome.causes:
        out.line((f"cause {cause['id']}", "bold"), f" ({outcome.check}): {cause['summary']}")
        for evidence in cause["evidence"]:
            out.line(f"  {evidence['file']}:{evidence['line']}: {evidence['text'].strip()}")
        out.line(f"  remedy: {cause['remedy']}")


def _reasons(results: Iterable[Result]) -> Iterable[tuple[Verdict, str]]:
    """Yield verdict and message of each failure; only the worst few pairs of each size."""
    failures = [row for row in results if row.verdict.is_problem]
    without_size = [row for row in failures if row.bytes is None]
    for rows in [without_size, *_groups(row for row in failures if row.bytes is not None)]:
        rows.sort(key=_quality)
        counts = Counter((row.verdict, row.message) for row in rows)
        shown = list(counts.items())[: len(counts) if rows is without_size else _MAX_SHOWN]
        for (verdict, message), count in shown:
            yield verdict, message + (f" ({count} times)" if count > 1 else "")
        if left := len(counts) - len(shown):
            yield (
                worst(row.verdict for row in rows),
                f"and {left} more of this size, see the report",
            )


def _print_notes(outcomes: Sequence[Outcome], out: Terminal) -> None:
    """Print each note once, as most apply to every check; their evidence is in the JSON only."""
    for text in dict.fromkeys(
        f"note {note['id']}: {note['summary']}" for o in outcomes for note in o.notes
    ):
        out.line(text)
