# SPDX-License-Identifier: MIT
"""``busbar site calibrate``: writes a site's own bands beside its `site.yaml`."""

from __future__ import annotations

import argparse
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from busbar import site as sites
from busbar.boundary import output_directory
from busbar.check.calibrate import FEWEST_RUNS, Accept, CalibratedSeries, below_model, calibrate
from busbar.check.surroundings import own
from busbar.data import busbar
from busbar.delivery.choice import DEFAULT_LANE
from busbar.document import read_document, to_json
from busbar.engine.check_document import CheckDocument
from busbar.errors import BusbarError
from busbar.site.calibration import load, write
from busbar.site.load import ships
from busbar.terminal import Table, stderr, stdout

EXIT_REFUSED = 1
_RUNS = 5


def add_parser(commands: Any) -> None:
    """Add ``busbar site calibrate``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate",
        help="measure the bands of a site on itself",
        description=(
            "Run the checks several times, or read results.json of earlier runs, and write the"
            " bands of all readings that agree to calibration.yaml beside site.yaml. Checks and"
            " explanations then judge by them. Runs with a fault, on busy or on slow nodes, and"
            " readings below the model of the links or below an earlier calibration are refused."
            " Exit status: 0 written, 1 no band"
            " could be made, 2 invalid input."
        ),
    )
    parser.add_argument("--site", required=True, help="name or directory of a site of your own")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="results.json of earlier runs"
    )
    parser.add_argument(
        "--runs",
        type=int,
        metavar="N",
        help=f"run the checks N times (default without files: {_RUNS}; at least {FEWEST_RUNS})",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("busbar-calibration"),
        metavar="DIR",
        help="directory for the runs (default: %(default)s)",
    )
    parser.add_argument(
        "--lane",
        default=DEFAULT_LANE,
        help="UCX lane: ucx-1.14 or ucx-current (default: %(default)s)",
    )
    parser.add_argument("--prefix", type=Path, metavar="DIR", help="as for busbar check")
    parser.add_argument(
        "-n", "--name", action="append", default=[], help="only checks of this name (repeatable)"
    )
    parser.add_argument(
        "--accept-below-model",
        action="store_true",
        help="take readings as the norm that are below what the model of the links says",
    )
    parser.add_argument(
        "--accept-below-previous",
        action="store_true",
        help="take readings as the norm that are below an earlier calibration of the site",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_command)


def run_command(args: argparse.Namespace) -> int:
    """Calibrate; print what became of each series."""
    site = sites.load(args.site)
    if site.directory is None or ships(site):
        raise BusbarError(
            "ships with Busbar, and a calibration is of one machine",
            where=f"site {site.name}",
            hint="write a site of your own: busbar site detect --output DIR",
        )
    files = [
        *args.files,
        *(_runs(args, args.runs or _RUNS) if args.runs or not args.files else []),
    ]
    found = calibrate(
        {str(file): _document(file) for file in files},
        site=site.name,
        former=load(site),
        accept=Accept(args.accept_below_model, args.accept_below_previous),
    )
    bands = found.calibration.bands
    path = write(found.calibration, site.directory) if bands else None
    if args.json:
        stdout().document(to_json(replace(found, file=str(path) if path else None)))
    else:
        _print(path, found.lines)
    return 0 if bands else EXIT_REFUSED


def _runs(args: argparse.Namespace, runs: int) -> list[Path]:
    """Run the checks; return the results of each run."""
    if runs < FEWEST_RUNS:
        raise BusbarError(
            f"must be at least {FEWEST_RUNS}, got {runs}",
            where="--runs",
            hint="fewer do not tell how readings scatter",
        )
    output = output_directory(args.output, "--output")
    with own(output):
        return [_run(args, run, runs, output / str(run)) for run in range(1, runs + 1)]


def _run(args: argparse.Namespace, run: int, runs: int, output: Path) -> Path:
    """Run the checks once; return the file of the results."""
    stderr().line(f"busbar: run {run} of {runs}")
    # Without -P a module in the working directory would be imported.
    command = busbar("check", "--site", args.site)
    command += ["--lane", args.lane, "--output", str(output)]
    command += ["--prefix", str(args.prefix)] if args.prefix else []
    command += [part for name in args.name for part in ("-n", name)]
    # A signal reaches it as well (busbar.check.processes): leaving the block waits for it.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status = process.wait()
    if status not in (0, 1, 3):
        raise BusbarError(
            f"run {run} ended with exit status {status}",
            where="busbar check",
            hint="see its message above",
        )
    return output / "results.json"


def _document(path: Path) -> CheckDocument:
    """Read the results of a run. Raises ``BusbarError`` for anything else."""
    hint = "give results.json of busbar check, of this version"
    document: CheckDocument = read_document(path, hint, CheckDocument)
    # A barrier moves nothing, and has no band.
    rows = tuple(row for row in document.results if not row.series or row.series.bytes)
    document = replace(document, results=rows)
    try:
        for row in document.results:
            if row.series:
                row.series.complete()
    except ValueError as error:
        raise BusbarError(str(error), where=str(path), hint=hint) from error
    return document


def _print(path: Path | None, lines: tuple[CalibratedSeries, ...]) -> None:
    out = stdout(log_width=120)
    table = Table(box=None, pad_edge=False)
    for name in ("series", "readings", "typical", "spread", "of the model", ""):
        justify: Any = "left" if name in ("series", "") else "right"
        table.add_column(name, justify=justify, overflow="fold")
    for line in lines:
        unit = "us" if line.series.kind == "latency_us" else "GB/s"
        table.add_row(
            *(line.name, str(line.readings), f"{line.typical:.4g} {unit}", f"{line.spread:.1%}"),
            f"{line.model:.2f}" if line.model is not None else "no model",
            f"no band: {line.refused}" if line.refused else "band",
        )
    out.show(table)
    for line in below_model(lines):
        out.line(f"below the model: {line.name}, {line.model:.2f} of it")
    if path:
        out.line(f"wrote {path}; next, run: busbar check --site {path.parent}")
    else:
        out.line("no series got a band; nothing was written")
