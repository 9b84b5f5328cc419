# SPDX-License-Identifier: MIT
"""``busbar history``: readings over time, what changed, and when."""

from __future__ import annotations

import argparse
from statistics import median_high
from typing import Any

from busbar.commands.declare import command, group, show
from busbar.data import history_directory
from busbar.errors import BusbarError, several, suggestion
from busbar.history import importing
from busbar.history.compare import EMPTY, Compared, Comparison, compare
from busbar.history.events import Changes, find_events
from busbar.history.importing import Imports
from busbar.history.model import Change, HistorySeries, HistoryShow, NightSeries, iso
from busbar.history.read import history, read_series
from busbar.history.statistic import SHORTEST, WINDOWS
from busbar.history.store import HistoryList, HistoryStore
from busbar.plain import Column, Part
from busbar.report.headline import of_news
from busbar.report.news import news
from busbar.terminal import stderr, stdout
from busbar.verdict import Verdict
from busbar.words import counted, names_text

# ---- Output of ``busbar history``
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


# ---- The commands
EXIT_FOUND = 1


def add_parser(subparsers: Any) -> None:
    """Add ``busbar history`` and its actions."""
    commands = group(
        subparsers,
        "history",
        "Read the stored results of busbar check, and imported readings. Both "
        "are in ~/.reframe/reports, or in the directory BUSBAR_HISTORY.",
    )
    command(commands, _changes)
    command(commands, _show)
    command(commands, _compare)
    command(commands, _list)
    command(commands, _import)


def _import(args: argparse.Namespace) -> int:
    """Add readings from files to the history.

    Reads JSON lines, results.json, ReFrame reports, and output of nccl-tests and OSU.

    Exit status: 0 done, 2 invalid input.

    Examples:

        busbar history import results.json
        busbar history import --site alpha --node n7 --time 2026-01-31T04:00 nccl-*.out
    """
    place = importing.ImportPlace(args.site, args.partition, args.node, args.time)
    done, errors = [], []
    with history(to_write=True) as store:
        for path in args.files:
            try:
                done.append(importing.import_file(store, path, place))
            except BusbarError as error:
                errors.append(error)
    if not args.json or not errors:
        show(args, importing.Imports(files=tuple(done)), imported)
    if errors:
        raise several(errors)
    return 0


def _list(args: argparse.Namespace) -> int:
    """List the sessions and the imported files.

    Exit status: 0 done, 2 invalid input.

    Examples:

        busbar history list
        busbar history list --site alpha --since 2026-01-01
    """
    with history() as store:
        _series(store, args.site)
        found = [
            each
            for each in store.sources()
            if (not args.site or args.site in each.sites)
            and (args.since is None or each.last >= args.since)
        ]
    show(args, HistoryList(sources=tuple(found)), sources)
    return 0


def _show(args: argparse.Namespace) -> int:
    """Show series with their last and typical readings.

    A word that does not occur in any series may be a session or file from busbar history list, or
    the beginning of its ID: then only its readings are shown.

    Exit status: 0 done, 2 invalid input.

    Examples:

        busbar history show --site alpha
        busbar history show n7 all_reduce --json
    """
    with history() as store:
        found = _series(store, args.site, args.since)
        facts, words = store.provenance(), [word.lower() for word in args.words]
        lost = [w for w in words if not any(w in each.key.name.lower() for each in found)]
        if lost and (of := read_series(store, args.site, args.since, lost[0])):
            found, words = of, [word for word in words if word != lost[0]]
    chosen = [each for each in found if all(word in each.key.name.lower() for word in words)]
    if found and not chosen:
        known = {part.lower() for each in found for part in each.key.name.split()}
        hint = suggestion([*lost, *words][0], sorted(known), "busbar history show lists all")
        raise BusbarError(f"no series has {' and '.join(map(repr, words))}", hint=hint)
    document = HistoryShow(series=tuple(HistorySeries.of(each, facts) for each in chosen))
    show(args, document, series)
    return 0


def _series(store: HistoryStore, site: str, since: float | None = None) -> list[NightSeries]:
    """Return the series; raise ``BusbarError`` for a site without series."""
    found = read_series(store, site, since)
    if site and not found:
        sites = sorted({each.key.site for each in read_series(store)})
        hint = f"sites with readings: {', '.join(sites) or 'none'}"
        raise BusbarError("has no readings in the history", where=f"site {site}", hint=hint)
    return found


def _compare(args: argparse.Namespace) -> int:
    """Compare two selections, series by series.

    Exit status: 0 done, 2 invalid input.

    Examples:

        busbar history compare 2026-01-01..2026-02-01 2026-02-01..
        busbar history compare driver=570.86.15 driver=580.65.06 --site alpha
    """
    with history() as store:
        found = compare(store, args.a, args.b, args.site)
    show(args, found, compared)
    return 0


def _changes(args: argparse.Namespace) -> int:
    """Show what changed, when, and what else differed at that time.

    Exit status: 0 done, 1 if a series became worse, 2 invalid input.

    Examples:

        busbar history changes --site alpha
        busbar history changes --since 2026-01-01 --json
    """
    with history() as store:
        series = _series(store, args.site)
        events = find_events(series, store.provenance(), args.since)
        if not store.kept:
            what = f"{store.path} cannot be written; reading all sessions again"
            stderr().line(f"busbar history: {what}")
    show(args, Changes.of(events, series), changes)
    return EXIT_FOUND if any(event.worse for event in events) else 0
