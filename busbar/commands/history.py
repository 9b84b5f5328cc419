# SPDX-License-Identifier: MIT
"""``busbar history``: what was measured night after night, and what changed since when."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from busbar.commands import history_show as show
from busbar.document import to_json
from busbar.errors import BusbarError, several
from busbar.history import importing
from busbar.history.baseline import BaselineFiles, baseline
from busbar.history.compare import compare
from busbar.history.events import Changes, find_events
from busbar.history.model import Event, HistorySeries, HistoryShow, NightSeries
from busbar.history.read import history, read_series
from busbar.history.store import HistoryList, HistoryStore, Pruned
from busbar.terminal import stderr, stdout
from busbar.units import seconds

_D = TypeVar("_D")
EXIT_FOUND = 1
_FEWEST_NIGHTS = 3


def add_parser(subparsers: Any) -> None:
    """Add ``busbar history``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "history",
        description=(
            "Read what ReFrame has stored of the runs of busbar check, and what was imported."
            " Both are in ~/.reframe/reports, or in the directory that BUSBAR_HISTORY names."
            " Exit status: 0 done, 1 of changes if a series became worse, 2 invalid input."
        ),
    )
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    _add_import(commands)
    listed = _add(commands, "list", _list, "list the sessions and the imported files")
    _add_range(listed)
    shown = _add(commands, "show", _show, "show series with their last and typical readings")
    _add_range(shown)
    shown.add_argument("words", nargs="*", metavar="WORD", help="only series with these words")
    compared = _add(commands, "compare", _compare, "compare two selections, series by series")
    for name in ("a", "b"):
        compared.add_argument(
            name,
            metavar=name.upper(),
            help="a session, a time as in 2026-01-01..2026-02-01, or a value of a series or of"
            " provenance, as in delivery=spack, lane=ucx-1.14, driver=570.86.15",
        )
    compared.add_argument("--site", default="", help="only this site")
    changed = _add(
        commands, "changes", _changes, "name what changed, when, and what differed then"
    )
    _add_range(changed)
    based = _add(
        commands, "baseline", _baseline, "write nights without a change for busbar site calibrate"
    )
    based.add_argument("--site", required=True, help="name of the site")
    based.add_argument(
        "--nights", type=_count, default=14, metavar="N", help="the last N (default: %(default)s)"
    )
    based.add_argument(
        "--output", type=Path, required=True, metavar="DIR", help="directory for the files"
    )
    pruned = _add(commands, "prune", _prune, "remove old readings from the history")
    pruned.add_argument(
        "--before",
        type=_time,
        required=True,
        metavar="TIME",
        help="remove readings before this time, ISO 8601",
    )


def _add(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    found = "1 if a series became worse, " if name == "changes" else ""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}."
        f" Exit status: 0 done, {found}2 invalid input.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)
    return parser


def _add_import(commands: Any) -> None:
    parser = _add(
        commands,
        "import",
        _import,
        "add readings of files: JSON lines, results.json,"
        " reports and performance logs of ReFrame, outputs of nccl-tests and OSU",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files to read")
    parser.add_argument("--site", default="", help="for files that do not name it")
    parser.add_argument("--partition", default="", help="for files that do not name it")
    parser.add_argument("--node", default="", help="for outputs that do not name it")
    parser.add_argument(
        "--time",
        type=_time,
        help="time of outputs, ISO 8601 (default: when the file was changed)",
    )


def _add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--site", default="", help="only this site")
    parser.add_argument("--since", type=_time, metavar="TIME", help="only since then, ISO 8601")


def _time(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:9]) < _FEWEST_NIGHTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {_FEWEST_NIGHTS}")
    return int(text[:9])


def _print(args: argparse.Namespace, document: _D, as_text: Callable[[_D], None]) -> None:
    if args.json:
        stdout().document(to_json(document))
    else:
        as_text(document)


def _import(args: argparse.Namespace) -> int:
    place = importing.ImportPlace(args.site, args.partition, args.node, args.time)
    done, errors = [], []
    with history(to_write=True) as store:
        for path in args.files:
            try:
                done.append(importing.import_file(store, path, place))
            except BusbarError as error:
                errors.append(error)
    if not args.json or not errors:
        _print(args, importing.Imports(files=tuple(done)), show.imported)
    if errors:
        raise several(errors)
    return 0


def _list(args: argparse.Namespace) -> int:
    with history() as store:
        _series(store, args.site)
        sources = [
            each
            for each in store.sources()
            if (not args.site or args.site in each.sites)
            and (args.since is None or each.last >= args.since)
        ]
    _print(args, HistoryList(sources=tuple(sources)), show.sources)
    return 0


def _show(args: argparse.Namespace) -> int:
    with history() as store:
        found = _series(store, args.site, args.since)
        facts = store.provenance()
    words = [word.lower() for word in args.words]
    chosen = [each for each in found if all(word in each.key.name.lower() for word in words)]
    document = HistoryShow(series=tuple(HistorySeries.of(each, facts) for each in chosen))
    _print(args, document, show.series)
    return 0


def _series(store: HistoryStore, site: str, since: float | None = None) -> list[NightSeries]:
    """Return the series; raise ``BusbarError`` for a site without any."""
    found = read_series(store, site, since)
    if site and not found:
        sites = sorted({each.key.site for each in read_series(store)})
        raise BusbarError(
            "has no readings in the history",
            where=f"site {site}",
            hint=f"sites with readings: {', '.join(sites) or 'none'}",
        )
    return found


def _events(
    args: argparse.Namespace, store: HistoryStore
) -> tuple[list[NightSeries], list[Event]]:
    found = _series(store, args.site)
    since = getattr(args, "since", None)
    return found, find_events(found, store.provenance(), since)


def _compare(args: argparse.Namespace) -> int:
    with history() as store:
        found = compare(store, args.a, args.b, args.site)
    _print(args, found, show.compared)
    return 0


def _changes(args: argparse.Namespace) -> int:
    with history() as store:
        series, events = _events(args, store)
        _warn_if_not_kept(store)
    _print(args, Changes.of(events, series), show.changes)
    return EXIT_FOUND if any(event.worse for event in events) else 0


def _warn_if_not_kept(store: HistoryStore) -> None:
    if not store.kept:
        stderr().line(f"busbar history: {store.path} cannot be written; sessions are read anew")


def _baseline(args: argparse.Namespace) -> int:
    with history() as store:
        series, events = _events(args, store)
        found = baseline(args.site, series, events, args.nights)
    if not (found.documents or found.left_out or found.too_new):
        raise BusbarError(
            "has no readings that bands are made of",
            where=f"site {args.site}",
            hint="run busbar check; JSON lines and outputs do not say what a band needs",
        )
    if len(found.documents) < _FEWEST_NIGHTS:
        raise BusbarError(
            f"{len(found.documents)} nights without a change and within their bands, at least"
            f" {_FEWEST_NIGHTS} are needed ({found.left_out} had readings outside of them)",
            where=f"site {args.site}",
            hint="give more --nights, or see busbar history changes",
        )
    files = show.write_documents(found, args.output)
    document = BaselineFiles(
        site=args.site, files=files, left_out=found.left_out, too_new=found.too_new
    )
    _print(args, document, show.baseline)
    return 0


def _prune(args: argparse.Namespace) -> int:
    with history(to_write=True) as store:
        before = store.path.stat().st_size
        count = store.prune(args.before)
        after = store.path.stat().st_size
    document = Pruned(readings=count, bytes_before=before, bytes_after=after)
    _print(args, document, show.pruned)
    return 0
