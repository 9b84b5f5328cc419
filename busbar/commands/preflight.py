# SPDX-License-Identifier: MIT
"""``busbar preflight``: check before a job whether an image will run at full speed."""

from __future__ import annotations

import argparse
import signal
import sys
from itertools import groupby

from busbar import site as sites
from busbar.commands.declare import show
from busbar.plain import Column
from busbar.preflight.host import gather
from busbar.preflight.lines import OF_HOST, examine
from busbar.preflight.model import PreflightReport, Status
from busbar.preflight.plan import Contents, make_plan
from busbar.terminal import stdout

_COLOR = {Status.READY: "green", Status.SLOW: "yellow", Status.BROKEN: "red"}


def preflight(args: argparse.Namespace) -> int:
    """Check before a job whether an image runs at full speed on a site.

    Reads the image (a SIF or a sandbox) and the files of this host. Executes nothing from the
    image.

    Exit status: 0 ready, 1 slow or broken, 2 invalid input.

    Examples:

        busbar preflight --site h200x4 pytorch.sif
        busbar preflight --site alpha --program /usr/bin/osu_bw image.sif
    """
    # A file that is being extracted is removed, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    site = sites.load(args.site)
    host = gather(args.host_root, site)
    contents = Contents.of_file(args.image)
    report = examine(make_plan(contents, site, host, args.inject, args.program))
    show(args, report, _show, indent=2)
    return 0 if report.verdict is Status.READY else 1


def _show(report: PreflightReport) -> None:
    out = stdout()
    verdict = (report.verdict, f"bold {_COLOR[report.verdict]}")
    bad = [each for each in report.lines if each.status is report.verdict is not Status.READY]
    reason = f": {bad[0].name}: {bad[0].reason}" if bad else ""
    out.line(verdict, f": {report.image} on {report.site}{reason}")
    broken = report.verdict is Status.BROKEN
    out.line(("next", "bold"), f": {(broken and bad[0].remedy) or report.command}")
    lines = sorted(report.lines, key=lambda each: each.name in OF_HOST)
    for of_host, each in groupby(lines, key=lambda line: line.name in OF_HOST):
        out.line("this host:" if of_host else "the image:")
        for line in each:
            out.line("  ", (line.status, _COLOR[line.status]), f" {line.name}: {line.reason}")
            if line.remedy:
                out.line(f"    remedy: {line.remedy}")
    out.line("libraries as resolved by the loader:")
    names = ("library", "origin", "path in the container")
    rows = [[each.name, each.origin, each.path] for each in report.libraries]
    out.fitted([Column(name) for name in names], rows)
