# SPDX-License-Identifier: MIT
"""The table of verdicts on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from busbar.judge.results import Outcome, Result
from busbar.units import format_bytes
from busbar.verdict import Verdict, worst

_STYLE = {
    Verdict.PASS: "green",
    Verdict.UNJUDGED: "blue",
    Verdict.UNKNOWN: "cyan",
    Verdict.DEGRADED: "yellow",
    Verdict.IMPOSSIBLE: "magenta",
    Verdict.FAILED: "red",
}

_FEW = 3
"""Pairs of one size that are named when they did not pass."""


def print_verdicts(outcomes: Sequence[Outcome], console: Console) -> None:
    """One row for each size and kind of buffers (the worst pair), then what did not pass."""
    table = Table(box=None, pad_edge=False)
    for name in ("check", "what", "where"):
        table.add_column(name, no_wrap=True)
    for name in ("measured", "band", "limit", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        for rows in _groups(outcome.results):
            table.add_row(*_cells(rows))
    console.print(table)
    for outcome in outcomes:
        _print_reasons(outcome, console)
    _print_notes(outcomes, console)


def _groups(results: Iterable[Result]) -> Iterable[list[Result]]:
    """Readings of one kind and size together; a result of another kind stands alone."""

    def key(result: Result) -> tuple[object, ...]:
        if result.bytes is None:
            return (id(result),)
        return (result.metric, result.buffers, result.bytes)

    ordered = sorted(enumerate(results), key=lambda item: (str(item[1].metric), item[0]))
    groups: dict[tuple[object, ...], list[Result]] = {}
    for _, result in ordered:
        groups.setdefault(key(result), []).append(result)
    return groups.values()


def _cells(rows: list[Result]) -> list[str]:
    verdict = worst(row.verdict for row in rows)
    row = _worst_reading([row for row in rows if row.verdict is verdict])
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
    return [row.check, what, where, *numbers, f"[{_STYLE[verdict]}]{verdict}[/]"]


def _worst_reading(rows: list[Result]) -> Result:
    """The slowest bandwidth or the longest latency, against its own band."""
    return min(rows, key=_goodness)


def _goodness(row: Result) -> float:
    if row.value is None or not row.typical:
        return 0.0
    share = row.value / row.typical
    return -share if row.metric == "latency" else share


def _print_reasons(outcome: Outcome, console: Console) -> None:
    for verdict, message in _reasons(outcome.results):
        console.print(f"[{_STYLE[verdict]}]{verdict}[/] {outcome.check}: ", end="")
        console.print(message, markup=False, highlight=False)
    for cause in outcome.causes:
        console.print(f"cause {cause['id']}", style="bold", end="")
        console.print(f" ({outcome.check}): {cause['summary']}", markup=False, highlight=False)
        for evidence in cause["evidence"]:
            text = f"  {evidence['file']}:{evidence['line']}: {evidence['text'].strip()}"
            console.print(text, markup=False, highlight=False)
        console.print(f"  remedy: {cause['remedy']}", markup=False, highlight=False)


def _reasons(results: Iterable[Result]) -> Iterable[tuple[Verdict, str]]:
    """What did not pass; of the pairs of one size the worst few, since the report has them all."""
    wrong = [row for row in results if row.verdict.is_problem]
    whole = [row for row in wrong if row.bytes is None]
    for rows in [whole, *_groups(row for row in wrong if row.bytes is not None)]:
        rows.sort(key=_goodness)
        counts = Counter((row.verdict, row.message) for row in rows)
        shown = list(counts.items())[: len(whole) if rows is whole else _FEW]
        for (verdict, message), count in shown:
            yield verdict, message + (f" ({count} times)" if count > 1 else "")
        if left := len(counts) - len(shown):
            yield (
                worst(row.verdict for row in rows),
                f"and {left} more of this size, see the report",
            )


def _print_notes(outcomes: Sequence[Outcome], console: Console) -> None:
    """One line a note, once: most are true of every check; the evidence is in the JSON."""
    for text in dict.fromkeys(
        f"note {note['id']}: {note['summary']}" for o in outcomes for note in o.notes
    ):
        console.print(text, markup=False, highlight=False)
