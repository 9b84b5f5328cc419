# SPDX-License-Identifier: MIT
"""``busbar site calibrate``: write a site's own bands next to its `site.yaml`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from busbar import site as sites
from busbar.check.calibrate import Accept, CalibrationResult, below_model, calibrate
from busbar.commands.declare import show
from busbar.document import read_document
from busbar.engine.check_document import CheckDocument
from busbar.errors import value_error
from busbar.parse.tables import refused
from busbar.plain import Column, Part
from busbar.site.calibration import load, write
from busbar.site.load import ships
from busbar.terminal import stdout

EXIT_REFUSED = 1


def run(args: argparse.Namespace) -> int:
    """Derive the bands of a site from its own runs.

    Reads the results of at least three runs of busbar check, and writes bands for all consistent
    readings to calibration.yaml next to site.yaml. Checks and explanations then use these bands.
    Refuses runs with a fault or on busy or slow nodes, and readings below the link model or an
    earlier calibration.

    Exit status: 0 written, 1 no band could be derived, 2 invalid input.

    Examples:

        busbar site calibrate --site sites/alpha run-*/results.json
        busbar site calibrate --site sites/alpha --accept-below-model run-*/results.json --json
    """
    site = sites.load(args.site)
    if site.directory is None or ships(site):
        raise refused(__file__, "shipped", f"site {site.name}")
    found = calibrate(
        {str(file): _document(file) for file in args.files},
        site=site.name,
        former=load(site),
        accept=Accept(args.accept_below_model, args.accept_below_previous),
    )
    bands = found.calibration.bands
    path = write(found.calibration, site.directory) if bands else None
    show(args, replace(found, file=str(path) if path else None), _print)
    return 0 if bands else EXIT_REFUSED


def _document(path: Path) -> CheckDocument:
    """Read the results of a run. Raises ``BusbarError`` if the file is not one."""
    hint = "pass a results.json written by this version of busbar check"
    document = read_document(path, hint, CheckDocument)
    # A barrier moves no data and has no band.
    rows = tuple(row for row in document.results if not row.series or row.series.bytes)
    document = replace(document, results=rows)
    with value_error("{}", path, hint):
        for row in document.results:
            if row.series:
                row.series.complete()
    return document


def _print(found: CalibrationResult) -> None:
    out = stdout()
    names = ("series", "readings", "typical", "spread", "of the model", "")
    rows: list[list[Part]] = []
    for line in found.lines:
        unit = "us" if line.series.kind == "latency_us" else "GB/s"
        numbers = [str(line.readings), f"{line.typical:.4g} {unit}", f"{line.spread:.1%}"]
        model = f"{line.model:.2f}" if line.model is not None else "no model"
        end = f"no band: {line.refused}" if line.refused else "band"
        rows.append([line.name, *numbers, model, end])
    out.fitted([Column(name, right=name not in ("series", "")) for name in names], rows)
    for line in below_model(found.lines):
        out.line(f"below the model: {line.name}, {line.model:.2f} of the model")
    if found.file:
        out.line(f"wrote {found.file}; next, run: busbar check --site {Path(found.file).parent}")
    else:
        out.line("no series got a band; nothing was written")
