# SPDX-License-Identifier: MIT
"""``busbar history``: readings over time, what changed, and when."""

from __future__ import annotations

import argparse
from typing import Any

from busbar.commands.declare import command, group, show
from busbar.commands.history_show import changes, compared, imported, series, sources
from busbar.errors import BusbarError, several, suggestion
from busbar.history import importing
from busbar.history.compare import compare
from busbar.history.events import Changes, find_events
from busbar.history.model import HistorySeries, HistoryShow, NightSeries
from busbar.history.read import history, read_series
from busbar.history.store import HistoryList, HistoryStore
from busbar.terminal import stderr

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
