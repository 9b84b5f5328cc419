# SPDX-License-Identifier: MIT
"""``busbar report``: pages, text and metrics from the results of runs and their history."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.check.surroundings import write
from busbar.errors import BusbarError
from busbar.report.fleet import Fleet
from busbar.report.mail import mail
from busbar.report.page import page_of, render_pages
from busbar.report.prometheus import metrics
from busbar.report.sections import Frame
from busbar.report.snapshot import Snapshot, read
from busbar.report.sweep import Rates, map_of, read_rates, read_sweep
from busbar.site import Site
from busbar.site.model import NAME_PATTERN
from busbar.terminal import stderr, stdout
from busbar.verdict import worst

_DEFAULT = Path("busbar-report/results.json")


def add_parser(subparsers: Any) -> None:
    """Add ``busbar report``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        description=(
            "Write pages that show the results of a run: what is wrong and since when, each check"
            " with its band and limit. They need no network and no server. Exit status: 0 written,"
            " whatever the verdict, 2 invalid input or nothing to do."
        ),
    )
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        metavar="RESULTS",
        help="results.json of a run; of several the last one is shown, and the one before it says"
        f" what is new (default: {_DEFAULT})",
    )
    parser.add_argument(
        "--site", help="name or directory of the site (default: that of the results)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="write index.html and a page for each check"
    )
    parser.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="write metrics for node_exporter"
    )
    parser.add_argument(
        "--summary", action="store_true", help="print one screen of text for mail or chat"
    )
    parser.add_argument(
        "--sweep",
        type=Path,
        metavar="FILE",
        help="also draw the nodes of a sweep: what busbar sweep analyse --json printed",
    )
    parser.add_argument(
        "--rows",
        type=Path,
        metavar="FILE",
        help="the rows of that sweep: nodes that nothing speaks against are drawn only with them",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if not (args.output or args.prometheus or args.summary):
        raise BusbarError(
            "nothing to do", hint="give --output DIR, --prometheus FILE or --summary"
        )
    if args.rows and not args.sweep:
        raise BusbarError("needs the verdict of the sweep", where="--rows", hint="give --sweep")
    sweep = _sweep(args) if args.sweep else None
    files = args.results or ([] if sweep else [_DEFAULT])
    runs = _runs(files, args.site) if files else [_without_checks(args, sweep)]
    run = runs[-1]
    site = _site(args.site, run.site) if run.outcomes else None
    frame = Frame(run, site, inline=False)
    page = page_of(frame, before=runs[-2] if len(runs) > 1 else None, sweep=sweep)
    try:
        if args.output:
            args.output.mkdir(parents=True, exist_ok=True)
            for name, text in render_pages(page):
                write(args.output / name, text)
        if args.prometheus:
            write(args.prometheus, metrics(run))
    except OSError as error:
        raise BusbarError(
            f"cannot be written: {error.strerror or error}",
            where=str(error.filename or args.output),
            hint="choose another place",
        ) from error
    if args.summary:
        for line in mail(page):
            stdout().line(line)
    elif args.output:
        stdout().line(f"report: {args.output / 'index.html'}")
    return 0


def _sweep(args: argparse.Namespace) -> Fleet:
    rates = read_rates(args.rows) if args.rows else Rates()
    return map_of(read_sweep(args.sweep), rates, {})


def _without_checks(args: argparse.Namespace, sweep: Fleet | None) -> Snapshot:
    """Return the run of a sweep that nothing else ran beside."""
    verdicts = [verdict for verdict, _ in sweep.counts] if sweep else []
    time = datetime.fromtimestamp(args.sweep.stat().st_mtime, UTC)
    return Snapshot(args.site or "sweep", time.isoformat(timespec="seconds"), worst(verdicts), ())


def _runs(files: Sequence[Path], site: str | None) -> list[Snapshot]:
    """Return the runs of one site in the order of their times."""
    runs = sorted((read(file) for file in files), key=lambda run: run.time)
    names = list(dict.fromkeys(run.site for run in runs))
    name = Path(site).name if site else names[-1]
    kept = [run for run in runs if run.site == name]
    if not kept:
        raise BusbarError(
            f"the results are of {', '.join(names)}",
            where="--site",
            hint=f"omit it, or give results of {name}",
        )
    if not site and len(names) > 1:
        raise BusbarError(
            f"the results are of several sites: {', '.join(names)}", hint="choose one with --site"
        )
    return kept


def _site(name: str | None, measured: str) -> Site | None:
    """Return the site; without it the pages lack the links of the node."""
    if name:
        return sites.load(name)
    if not re.fullmatch(NAME_PATTERN, measured):
        return None  # a file that anybody can have written does not choose a path
    try:
        return sites.load(measured)
    except BusbarError as error:
        stderr().line(f"busbar report: links are not drawn: {error.alone()}")
        return None
