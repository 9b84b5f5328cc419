# SPDX-License-Identifier: MIT
"""``busbar check``: runs the checks on this machine, prints verdicts, writes a report."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from busbar import site as sites
from busbar.check.results import Outcome
from busbar.check.run import CHECKS, Plan, overall, run
from busbar.report import html
from busbar.report.terminal import print_verdicts
from busbar.site.detect import detect, match
from busbar.site.load import find
from busbar.site.reframe import DEFAULT_LANE, configuration
from busbar.site.write import write
from busbar.verdict import Verdict


def add_parser(subparsers: Any) -> None:
    """Adds ``busbar check``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="run the checks on this machine and print verdicts",
        description=(
            "Runs ReFrame on reframe_checks/ with the configuration of the site, prints one row"
            " for each size, and writes report.html and results.json. Exit status: 0 all pass, 1 a"
            " verdict is not pass, 2 bad input."
        ),
    )
    parser.add_argument("--site", help="name or directory of a site (default: detected)")
    parser.add_argument(
        "--lane", default=DEFAULT_LANE, help="which UCX: ucx-1.14 or ucx-current (%(default)s)"
    )
    parser.add_argument(
        "-n", "--name", action="append", default=[], help="only checks of this name (repeatable)"
    )
    parser.add_argument(
        "-t", "--tag", action="append", default=[], help="only checks with this tag (repeatable)"
    )
    parser.add_argument(
        "-c",
        "--checks",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="file or directory of checks, in place of reframe_checks/ (repeatable)",
    )
    parser.add_argument(
        "-S",
        "--setvar",
        action="append",
        default=[],
        metavar="[CHECK.]VAR=VALUE",
        help="set a variable of the checks, as reframe -S does (repeatable)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("busbar-report"),
        metavar="DIR",
        help="where the report and ReFrame's files go (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_command)


def run_command(args: argparse.Namespace) -> int:
    """Runs the checks; progress goes to standard error, the verdicts to standard output."""
    name = args.site or detected_site(args.output)
    site_file = find(name)
    configuration(site_file.parent, args.lane)  # what is wrong with it is said before the run
    plan = Plan(
        site=sites.load(name),
        site_dir=site_file.parent,
        lane=args.lane,
        output=args.output.resolve(),
        names=tuple(args.name),
        tags=tuple(args.tag),
        checks=tuple(path.resolve() for path in args.checks) or (CHECKS,),
        variables=tuple(args.setvar),
    )
    print(f"busbar: site {plan.site.name}, lane {plan.lane}", file=sys.stderr)
    outcomes = run(plan, lambda line: print(f"busbar: {line}", file=sys.stderr, flush=True))
    document = _document(plan, outcomes)
    (plan.output / "results.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    report = plan.output / "report.html"
    html.write(report, document, outcomes)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        console = Console(soft_wrap=True)
        if not console.is_terminal:
            console.width = (
                160  # a log file has no width; the usual 80 columns would cut the table
            )
        print_verdicts(outcomes, console)
        console.print(f"verdict: {document['verdict']}", style="bold")
        console.print(f"report: {report}", highlight=False)
    return 0 if document["verdict"] == Verdict.PASS else 1


def detected_site(output: Path) -> str:
    """The shipped site that this machine is; else its own facts, written below ``output``."""
    detected = detect()
    if known := match(detected):
        return known
    directory = output / "site" / "detected"
    shutil.rmtree(directory, ignore_errors=True)
    write(detected.site, directory)
    print(
        f"busbar: no site that ships is this machine ({detected.site.description}); its facts"
        f" are in {directory}",
        file=sys.stderr,
    )
    return str(directory)


def _document(plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What ``--json`` prints; keys are stable."""
    versions: dict[str, str] = {}
    for outcome in outcomes:
        versions |= {name: value for name, value in outcome.versions.items() if value}
    rows = []
    for outcome in outcomes:
        for result in outcome.results:
            rows.append({**asdict(result), "share_of_limit": result.share_of_limit})
    return {
        "site": plan.site.name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "delivery": next((o.delivery for o in outcomes if o.delivery), ""),
        "lane": plan.lane,
        "versions": versions,
        "results": rows,
        "causes": [{"check": o.check, **cause} for o in outcomes for cause in o.causes],
        "notes": [{"check": o.check, **note} for o in outcomes for note in o.notes],
        "verdict": overall(outcomes),
    }
