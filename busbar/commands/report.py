# SPDX-License-Identifier: MIT
"""``busbar report``: write pages, text and metrics from results and their history."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from pathlib import Path

from busbar import site as sites
from busbar.boundary import refuse_foreign_to_root, replace_file
from busbar.check.snapshot import Snapshot, read
from busbar.cluster.nodes.record import read_nodes
from busbar.cluster.sweep.document import read_sweep
from busbar.detect.detected import NAME as DETECTED
from busbar.errors import BusbarError, file_error
from busbar.parse.tables import refused
from busbar.report.fleet import Fleet
from busbar.report.mail import mail
from busbar.report.page import Page, page_of, render_pages
from busbar.report.past import Past, past
from busbar.report.prometheus import metrics
from busbar.report.sections import Frame
from busbar.report.sweep import map_of, read_rates
from busbar.site import Site
from busbar.site.links import NAME_PATTERN
from busbar.slurm.topology import SwitchTopology, read_topology
from busbar.terminal import stderr, stdout
from busbar.verdict import Verdict, worst

_DEFAULT = Path("busbar-report/results.json")


def report(args: argparse.Namespace) -> int:
    """Write HTML pages, a mail text or metrics from the results of runs.

    The pages show the results of a run: problems and since when they exist, and each check with
    its band and limit. They need neither a network nor a server.

    Exit status: 0 written, whatever the verdict, 2 invalid input or nothing to do.

    Examples:

        busbar report --output pages
        busbar report /shared/busbar/*/check/results.json --site alpha --mail
        busbar report --site alpha --sweep sweep.json --rows results.jsonl --output pages
    """
    page = _page(args)
    if not (args.output or args.prometheus or args.mail):
        raise BusbarError("nothing to do", hint="pass --output DIR, --prometheus FILE or --mail")
    if args.output:
        refuse_foreign_to_root(args.output, "--output")
        with file_error("cannot be written", args.output, "choose another path"):
            args.output.mkdir(parents=True, exist_ok=True)
        for name, text in render_pages(page):
            _write(args.output / name, text)
    if args.prometheus:
        _write(args.prometheus, metrics(page.run))
    if args.mail:
        for line in mail(page):
            stdout().line(line)
    elif args.output:
        stdout().line(f"report: {args.output / 'index.html'}")
    return 0


def _write(path: Path, text: str) -> None:
    with file_error("cannot be written", path, "choose another path"):
        replace_file(path, text)


def _page(args: argparse.Namespace) -> Page:
    for name in ("rows", "topology"):
        if getattr(args, name) and not args.sweep:
            raise refused(__file__, "no-sweep", f"--{name}")
    sweep = _sweep(args) if args.sweep else None
    runs = _runs(args)
    run = runs[-1] if runs else None
    name = run.site if run else _name(args.site or "")
    known = past(name, args.since) if name else Past()
    if run is None:
        run = _without_checks(name, known, sweep)
    site = _site(args.site, run.site) if run.outcomes else None
    frame = Frame(run, site, known.trends, inline=False)
    before = runs[-2] if len(runs) > 1 else None
    nodes = read_nodes(args.nodes).nodes if args.nodes else ()
    return page_of(frame, known.news, before=before, sweep=sweep, nodes=nodes)


def _sweep(args: argparse.Namespace) -> Fleet:
    rates = read_rates(args.rows) if args.rows else {}
    switches = read_topology(args.topology) if args.topology else SwitchTopology()
    return map_of(read_sweep(args.sweep), rates, switches.leaf_of)


def _without_checks(name: str, known: Past, sweep: Fleet | None) -> Snapshot:
    """Return an empty run for a report with only a sweep or the history."""
    if not sweep and known.last is None:
        where = f"site {name}" if name else str(_DEFAULT)
        raise refused(__file__, "no-readings" if name else "no-file", where)
    verdicts = [verdict for verdict, _ in sweep.counts] if sweep else []
    if any(each.recent and each.below_band for each in known.news):
        verdicts.append(Verdict.DEGRADED)
    time = datetime.fromtimestamp(known.last, UTC) if known.last else datetime.now(UTC)
    return Snapshot(
        site=name or "sweep",
        time=time.isoformat(timespec="seconds"),
        verdict=worst(verdicts or [Verdict.UNJUDGED]),
    )


def _runs(args: argparse.Namespace) -> list[Snapshot]:
    """Return the runs of one site in order of time; empty without results."""
    files = args.results or ([_DEFAULT] if _DEFAULT.exists() and not args.sweep else [])
    if not files:
        return []
    site: str | None = args.site
    runs = sorted((read(file) for file in files), key=lambda run: run.time)
    names = list(dict.fromkeys(run.site for run in runs))
    name = _name(site) if site else names[-1]
    kept = [run for run in runs if run.site == name]
    if not kept:
        raise refused(__file__, "other-site", "--site", name=name, names=names)
    if not site and len(names) > 1:
        raise refused(__file__, "several-sites", names=names)
    return kept


def _name(site: str) -> str:
    """Return the name of a site; for a directory, its last component."""
    return Path(site).name if Path(site).exists() else site


def _site(name: str | None, measured: str) -> Site | None:
    """Return the site, or None; without it, pages cannot tell whether nodes can be selected."""
    if name:
        return sites.load(name)
    if measured == DETECTED or not re.fullmatch(NAME_PATTERN, measured):
        return None  # an untrusted file must not choose a path
    try:
        return sites.load(measured)
    except BusbarError as error:
        stderr().line(f"busbar report: commands to repeat checks lack nodes: {error.alone()}")
        return None
