# SPDX-License-Identifier: MIT
"""``busbar check``: runs the checks on this machine, prints verdicts, writes a report."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from busbar import site as sites
from busbar.check.document import document_of, missing_features
from busbar.check.listing import Match, lines
from busbar.check.reframe import ReFrame
from busbar.check.run import RunPlan, load, make_directory, overall, run
from busbar.check.selection import expression, refuse_nothing, refuse_unknown, selected
from busbar.data import CHECKS
from busbar.delivery import reframe as reframe_configuration
from busbar.delivery.choice import DEFAULT_LANE, DELIVERY_ORDER, Choice
from busbar.delivery.environment import Environment
from busbar.detect.machine import detect, match
from busbar.detect.write import write
from busbar.documents import CheckDocument
from busbar.errors import BusbarError
from busbar.judge.results import Outcome
from busbar.report.terminal import print_verdicts
from busbar.site.load import find
from busbar.terminal import stderr, stdout
from busbar.verdict import EXIT_STATUSES, exit_status


def add_parser(subparsers: Any) -> None:
    """Adds ``busbar check``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        description=(
            "Runs ReFrame on reframe_checks/ with the configuration of the site, prints one row"
            f" for each size, and writes report.html and results.json. {EXIT_STATUSES}"
        ),
    )
    parser.add_argument("--site", help="name or directory of a site (default: detected)")
    parser.add_argument(
        "--lane",
        default=DEFAULT_LANE,
        help="which UCX: ucx-1.14 or ucx-current (default: %(default)s)",
    )
    parser.add_argument(
        "--prefix",
        type=Path,
        metavar="DIR",
        help="a directory in which osu-micro-benchmarks, nccl-tests and so on, or an MPI, are"
        " installed",
    )
    parser.add_argument(
        "--delivery",
        choices=DELIVERY_ORDER,
        help="which delivery of the site (default: the first that is installed)",
    )
    parser.add_argument(
        "--image",
        metavar="FILE",
        help="run the checks in this image: a SIF, a sandbox, an OCI archive, or a name in the"
        " store of Docker or Podman",
    )
    parser.add_argument(
        "--inject",
        action="append",
        default=[],
        metavar="DIR",
        help="a library directory of the host that the image takes before its own, as with"
        " busbar preflight (repeatable)",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="FEATURE",
        help="fail if no environment has this feature: osu, xccl, torch... (repeatable)",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print which checks can run with the stacks that the site declares, and why others"
        " cannot; with --prefix, --delivery or --image, with what that one contains",
    )
    parser.add_argument(
        "-n",
        "--name",
        action="append",
        default=[],
        help="only checks of this name, as --list prints it, or a regular expression (repeatable)",
    )
    parser.add_argument(
        "-t",
        "--tag",
        action="append",
        default=[],
        help="only checks with this tag: gate, nightly, full (repeatable; default: gate, or any"
        " with -n)",
    )
    parser.add_argument(
        "-c",
        "--checks",
        action="append",
        type=_existing,
        default=[],
        metavar="PATH",
        help="file or directory of checks, instead of reframe_checks/ (repeatable)",
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
        "--max-retries",
        type=int,
        choices=range(10),
        default=1,
        metavar="N",
        help="how often a check with readings below their band runs again, on the same nodes, and"
        " once more if its runs disagree (default: %(default)s)",
    )
    parser.add_argument(
        "--require-bands",
        action="store_true",
        help="end with exit status 1 instead of 3 if nothing could be judged",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("busbar-report"),
        metavar="DIR",
        help="directory for the report and the files of ReFrame (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_command)


def _existing(text: str) -> Path:
    path = Path(text).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text!r} does not exist")
    return path


def run_command(args: argparse.Namespace) -> int:
    """Run the checks; progress goes to standard error, the verdicts to standard output."""
    if args.inject and not args.image:
        raise BusbarError("needs an image", where="--inject", hint="name it with --image")
    if args.list:
        with TemporaryDirectory(prefix="busbar-list-") as directory:
            return _list(args, Path(directory))
    remove_old_results(args.output)
    return _run(args, args.output.resolve())


def _list(args: argparse.Namespace, output: Path) -> int:
    with ReFrame() as reframe:
        plan, environments = _plan(args, output)
        matches = load(plan, reframe)
    _refuse_unknown(args, matches, environments)
    matches = selected(matches, args.name, args.tag)
    if not matches:
        refuse_nothing(args.checks, args.name, args.tag)
    if args.json:
        rows = [{**asdict(match), "runs": bool(match.runs_in)} for match in matches]
        stdout().document(rows)
    else:
        for line in lines(matches):
            stdout().line(line)
    return 0


def _run(args: argparse.Namespace, output: Path) -> int:
    with ReFrame() as reframe, ThreadPoolExecutor() as beside:
        plan, environments = _plan(args, output)
        try:
            matches = load(plan, reframe)
        except BusbarError:
            matches = []  # the outcome of the run says why
        else:
            _refuse_unknown(args, matches, environments)
        _tell(f"site {plan.site.name}, lane {plan.lane}")
        # The library of the plots takes half a second to load: beside the checks, not before them.
        beside.submit(import_module, "busbar.report.html")
        outcomes = run(plan, _tell, reframe)
    outcomes += missing_features(plan, environments, args.require)
    skipped = [m for m in selected(matches, args.name, plan.tags) if not m.runs_in]
    if not outcomes:
        refuse_nothing(args.checks, args.name, plan.tags, [m.reason for m in skipped])
    document = document_of(plan, outcomes, skipped)
    (plan.output / "results.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    report = plan.output / "report.html"
    from busbar.report import html  # noqa: PLC0415 - see above

    html.write(report, document, outcomes)
    if args.json:
        stdout().document(document)
    else:
        _print(document, outcomes, report)
    return exit_status(overall(outcomes), require_bands=args.require_bands)


def _plan(args: argparse.Namespace, output: Path) -> tuple[RunPlan, list[Environment]]:
    """Detect the site, choose and probe the delivery, write the configuration of ReFrame."""
    name = args.site or detected_site(args.output)
    site_file = find(name)
    site = sites.load(name)
    choice = Choice(
        lane=args.lane,
        prefix=args.prefix.absolute() if args.prefix else None,
        delivery=args.delivery,
        declared=args.list and not (args.prefix or args.delivery or args.image),
        image=args.image,
        inject=tuple(args.inject),
        scratch=args.output.resolve() / "image",
    )
    config = reframe_configuration.load(site_file, choice)
    environments = [Environment.from_configuration(each) for each in config["environments"]]
    for each in environments:
        if each.not_compared:
            _tell(f"nothing to compare the image with: {each.not_compared}")
    make_directory(output)
    plan = RunPlan(
        site=site,
        config=reframe_configuration.write(config, output),
        lane=choice.lane,
        output=output,
        names=tuple(expression(name) for name in args.name),
        tags=tuple(args.tag) or (() if args.name or args.checks else ("gate",)),
        checks=tuple(args.checks) or (CHECKS,),
        variables=tuple(args.setvar),
        retries=args.max_retries,
    )
    return plan, environments


def _refuse_unknown(
    args: argparse.Namespace, matches: Sequence[Match], environments: Sequence[Environment]
) -> None:
    refuse_unknown(
        matches,
        names=args.name,
        tags=args.tag,
        required=args.require,
        provided=[feature for each in environments for feature in each.features],
    )


def _tell(line: str) -> None:
    stderr().line(f"busbar: {line}")


def _print(document: CheckDocument, outcomes: Sequence[Outcome], report: Path) -> None:
    out = stdout(log_width=200)  # a log has no width; the usual 80 columns would cut the table
    print_verdicts(outcomes, out)
    for row in document["skipped"]:
        out.line(f"skipped {row['check']}: {row['reason']}")
    out.line(f"verdict: {document['verdict']}", style="bold")
    out.line(f"report: {report}")


def remove_old_results(output: Path) -> None:
    """Remove the results of an earlier run: this run may end without a verdict."""
    if re.search(r"\s", str(output.resolve())):
        raise BusbarError(
            "ReFrame starts no job below a path with a blank",
            where=str(output.resolve()),
            hint="choose another --output",
        )
    for name in ("results.json", "report.html"):
        try:
            (output / name).unlink(missing_ok=True)
        except OSError as error:
            raise BusbarError(
                f"cannot be removed: {error.strerror}",
                where=str(output / name),
                hint="choose another --output",
            ) from error


def detected_site(output: Path) -> str:
    """Return the site that this machine is; else write its facts below ``output``."""
    detected = detect()
    if name := match(detected):
        return name
    if detected.gpu_tool_failed:
        raise BusbarError(
            f"the tools of a GPU vendor are here, but no GPU can be used:"
            f" {'; '.join(detected.gpu_tool_failed)}",
            hint="repair the driver, or name a site with --site",
        )
    directory = output / "site" / "detected"
    shutil.rmtree(directory, ignore_errors=True)
    write(detected.site, directory)
    _tell(
        f"no known site is this machine ({detected.site.description}); its facts"
        f" are in {directory}"
    )
    return str(directory)
