# SPDX-License-Identifier: MIT
"""The output of ``busbar history``."""

from __future__ import annotations

from statistics import median_high

from busbar.data import history_directory
from busbar.history.compare import EMPTY, Compared, Comparison
from busbar.history.events import Changes
from busbar.history.importing import Imports
from busbar.history.model import Change, HistoryShow, iso
from busbar.history.statistic import SHORTEST, WINDOWS
from busbar.history.store import HistoryList
from busbar.plain import Column, Part
from busbar.report.headline import of_news
from busbar.report.news import news
from busbar.terminal import stdout
from busbar.verdict import Verdict
from busbar.words import counted, names_text

_MOST_CHANGES = 10
_MOST_DIFFERENCES = 5


def imported(document: Imports) -> None:
    """Print the result for each file."""
    for each in document.files:
        new = counted(each.readings, "new reading") if each.readings else "nothing new"
        stdout().line(f"{each.file}: {each.kind}, {new}")


def sources(document: HistoryList) -> None:
    """Print the sessions and files."""
    if not document.sources:
        stdout().line(EMPTY.format(history_directory()))
        return
    columns = [Column("first"), Column("last", rank=2), Column("readings", right=True)]
    columns += [Column("sites"), Column("from", rank=1), Column("name")]
    rows: list[list[Part]] = [
        [
            *(iso(each.first)[:16], iso(each.last)[:16], f"{each.readings:,}"),
            *(",".join(each.sites), each.label, each.name),
        ]
        for each in document.sources
    ]
    stdout().fitted(columns, rows)


def series(document: HistoryShow) -> None:
    """Print series."""
    if not document.series:
        stdout().line(EMPTY.format(history_directory()))
        return
    columns = [Column("series"), Column("nights", right=True, rank=1), Column("last", rank=2)]
    columns += [Column(name, right=True) for name in ("last night", "median")]
    columns += [Column("band", rank=3), Column("unit")]
    rows: list[list[Part]] = []
    for each in document.series:
        values, low, high = each.values, each.low, each.high
        band = f"{low:.4g} .. {high:.4g}" if low is not None and high is not None else ""
        numbers = [f"{values[-1]:.4g}", f"{median_high(values):.4g}"]
        last = each.times[-1][:16]
        rows.append([each.key.name, str(len(values)), last, *numbers, band, each.key.unit])
    stdout().fitted(columns, rows)


def compared(document: Comparison) -> None:
    """Print a comparison."""
    a, b = document.a, document.b
    if not document.series:
        stdout().line(f"no series has readings from both {a} and {b}")
        return
    columns = [Column("series"), Column(a, right=True), Column(b, right=True)]
    columns += [Column("b / a", right=True), Column("b is"), Column("95 % interval", rank=1)]
    rows: list[list[Part]] = []
    found = [_direction(each) for each in document.series]
    counts = ", ".join(f"{found.count(word)} series {word}" for word in dict.fromkeys(found))
    is_judged = any(each.ratio.low is not None for each in document.series)
    stdout().line(counts if is_judged else f"unjudged: fewer than 4 readings of each; {counts}")
    for each, word in zip(document.series, found, strict=True):
        interval = "needs 4 readings of each"
        if each.ratio.low is not None and each.ratio.high is not None:
            interval = f"{each.ratio.low:.3f} .. {each.ratio.high:.3f}"
        unit = each.key.unit
        numbers = [f"{each.a:.4g} {unit}", f"{each.b:.4g} {unit}", f"{each.ratio.value:.3f}"]
        rows.append([each.key.name, *numbers, word, interval])
    stdout().fitted(columns, rows)


def _direction(each: Compared) -> str:
    """Return whether the second selection is better; ``alike`` if the interval has 1."""
    if each.ratio.value == 1 or (each.ratio.low is not None and not each.differs):
        return "alike"
    return "worse" if (each.ratio.value > 1) == each.key.less_is_better else "better"


def _no_change(document: Changes) -> str:
    if not document.series:
        return EMPTY.format(history_directory())
    nights, needed = counted(document.nights, "night"), SHORTEST + WINDOWS[0]
    if document.nights < needed:
        return f"unjudged: {nights} of at least {needed} that a change needs"
    return f"pass: nothing changed in {document.series} series of up to {nights}"


def changes(document: Changes) -> None:
    """Print events."""
    out = stdout()
    if not document.events:
        out.line(_no_change(document))
    if worse := of_news(list(news(document.events))):
        step = "see below what else changed; if intended, accept it with busbar site calibrate"
        out.headline(Verdict.DEGRADED, worse, step)
    for event in document.events:
        count = len(event.changes)
        shared = f": {', '.join(event.shared)}" if event.shared else ""
        bad = sum(change.worse for change in event.changes)
        counts = ((bad, "worse"), (count - bad, "better"))
        moved = ", ".join(f"{n} series {what}" for n, what in counts if n) + shared
        out.line(f"{iso(event.since)[:10]}  {moved}", style="yellow" if event.worse else "green")
        for change in event.changes[:_MOST_CHANGES]:
            out.line(f"  {_sentence(change)}")
        if count > _MOST_CHANGES:
            out.line(f"  and {count - _MOST_CHANGES} more (--json lists all)")
        changed = [each for each in event.differences if each.weight > 0]
        for each in changed[:_MOST_DIFFERENCES]:
            out.line(f"  differs: {each.text} ({each.reason})")
        same = [each.name for each in event.differences if not each.weight and each.before]
        if same:
            out.line(f"  unchanged: {names_text(same, 6)}")
        elif not changed and not event.drift:
            out.line("  provenance: none is stored for these nights")


def _sentence(change: Change) -> str:
    interval = ""
    if change.ratio.low is not None and change.ratio.high is not None:
        interval = f" [{change.ratio.low - 1:+.1%} .. {change.ratio.high - 1:+.1%}]"
    band = ", outside its band" if change.below_band else ""
    if change.weekly is not None:
        band = f", {change.weekly:+.2%} a week since {iso(change.since)[:10]}{band}"
    return (
        f"{change.key.name}: {change.before:.4g} -> {change.after:.4g} {change.key.unit}"
        f" ({change.ratio.value - 1:+.1%}{interval}){band}, certain on {iso(change.found)[:10]}"
    )
