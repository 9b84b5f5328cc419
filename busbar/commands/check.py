# SPDX-License-Identifier: MIT
"""``busbar check``: runs the checks on this machine, prints verdicts, writes a report."""

from __future__ import annotations

import argparse
import difflib
import json
import re
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Never

from rich.console import Console

from busbar import site as sites
from busbar.check.listing import Describing, Match, lines
from busbar.check.reframe import Loading
from busbar.check.run import RunPlan, overall, run
from busbar.data import CHECKS
from busbar.delivery import image
from busbar.delivery.environments import DEFAULT_LANE, DELIVERY_ORDER, Choice
from busbar.delivery.reframe import configuration
from busbar.detect.machine import detect, match
from busbar.detect.write import write
from busbar.documents import CheckDocument, Skipped
from busbar.errors import BusbarError
from busbar.judge.results import Outcome, Result
from busbar.report.terminal import print_verdicts
from busbar.site.load import find
from busbar.verdict import Verdict, exit_status


def add_parser(subparsers: Any) -> None:
    """Adds ``busbar check``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        description=(
            "Runs ReFrame on reframe_checks/ with the configuration of the site, prints one row"
            " for each size, and writes report.html and results.json. Exit status: 0 pass, 1"
            " unknown or worse, 2 bad input or not run, 3 unjudged."
        ),
    )
    parser.add_argument("--site", help="name or directory of a site (default: detected)")
    parser.add_argument(
        "--lane", default=DEFAULT_LANE, help="which UCX: ucx-1.14 or ucx-current (%(default)s)"
    )
    parser.add_argument(
        "--prefix",
        type=Path,
        metavar="DIR",
        help="a directory that holds osu-micro-benchmarks, nccl-tests and so on, or an MPI",
    )
    parser.add_argument(
        "--delivery",
        choices=DELIVERY_ORDER,
        help="which delivery of the site (default: the first of these that is here)",
    )
    parser.add_argument(
        "--image",
        metavar="FILE",
        help="run the checks in this image: a SIF, a sandbox, an OCI archive, or a name in the"
        " store of Docker or podman",
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
        help="fail when no environment has it: osu, xccl, torch... (repeatable)",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print what would run with all that the site declares, and why the rest would not;"
        " with --prefix or --delivery, with what is there",
    )
    parser.add_argument(
        "-n", "--name", action="append", default=[], help="only checks of this name (repeatable)"
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
        "--max-retries",
        type=int,
        choices=range(10),
        default=1,
        metavar="N",
        help="how often a check is run again whose readings are worse than their band, on the"
        " same nodes, until a run is clean (%(default)s)",
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


def _existing(text: str) -> Path:
    path = Path(text).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text!r} does not exist")
    return path


def run_command(args: argparse.Namespace) -> int:
    """Runs the checks; progress goes to standard error, the verdicts to standard output."""
    loading = None
    if not args.list:
        remove_old_results(args.output)
        loading = Loading()
    name = args.site or detected_site(args.output)
    site_file = find(name)
    choice = Choice(
        lane=args.lane,
        prefix=args.prefix.absolute() if args.prefix else None,
        delivery=args.delivery,
        declared=args.list and not (args.prefix or args.delivery or args.image),
        image=args.image,
        inject=tuple(args.inject),
    )
    choice = with_image_facts(choice, site_file, args.output)
    # What is wrong with it is said before the run.
    config = configuration(site_file.parent, choice=choice)
    for each in config["environments"]:
        if alone := each["extras"].get("alone"):
            print(f"busbar: nothing to compare the image with: {alone}", file=sys.stderr)
    checks = tuple(args.checks) or (CHECKS,)
    tags = tuple(args.tag) or (() if args.name or args.checks else ("gate",))
    describing = Describing(site_file.parent, choice, checks)
    if args.list or args.name or args.tag or args.require:
        _refuse_unknown(args, config, describing)
    if args.list:
        return _print_list(args, describing.matches(config))
    plan = RunPlan(
        site=sites.load(name),
        site_dir=site_file.parent,
        choice=choice,
        output=args.output.resolve(),
        names=tuple(args.name),
        tags=tags,
        checks=checks,
        variables=tuple(args.setvar),
        retries=args.max_retries,
    )
    _tell(f"site {plan.site.name}, lane {plan.lane}")
    # The library of the plots takes half a second to load: beside the checks, not before them.
    with ThreadPoolExecutor() as beside:
        beside.submit(import_module, "busbar.report.html")
        skipped = beside.submit(_skipped, plan, config, args.name, describing)
        outcomes = run(plan, _tell, loading)
    outcomes += _unmet(config, args.require, plan)
    if not outcomes:
        _nothing_to_run(args, tags, [row["reason"] for row in skipped.result()])
    document = _document(plan, outcomes, skipped.result())
    (plan.output / "results.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    report = plan.output / "report.html"
    from busbar.report import html  # noqa: PLC0415 - see above

    html.write(report, document, outcomes)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        console = Console(soft_wrap=True)
        if not console.is_terminal:
            console.width = 200  # a log has none; the usual 80 columns would cut the table
        print_verdicts(outcomes, console)
        for row in document["skipped"]:
            console.print(
                f"skipped {row['check']}: {row['reason']}", markup=False, highlight=False
            )
        console.print(f"verdict: {document['verdict']}", style="bold")
        console.print(f"report: {report}", highlight=False)
    return exit_status(overall(outcomes))


def _tell(line: str) -> None:
    print(f"busbar: {line}", file=sys.stderr, flush=True)


def remove_old_results(output: Path) -> None:
    """Its verdict must not be taken for that of a run that is refused, or fails without one."""
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


def with_image_facts(choice: Choice, site_file: Path, output: Path) -> Choice:
    """The choice with what there is to know of its image, which is found out once a run."""
    if choice.inject and not choice.image:
        raise BusbarError("needs an image", where="--inject", hint="name it with --image")
    if not choice.image:
        return choice
    scratch = output.resolve() / "image"
    facts = scratch / "facts.json"
    site = sites.load(site_file)
    image.look(choice.image, site, choice.inject, scratch).write(facts)
    return replace(choice, image_facts=facts)


def detected_site(output: Path) -> str:
    """Return the site that this machine is; else write its facts below ``output``."""
    detected = detect()
    if known := match(detected):
        return known
    if detected.gpu_tool_failed:
        raise BusbarError(
            f"the tools of a GPU vendor are here, but no GPU can be used:"
            f" {'; '.join(detected.gpu_tool_failed)}",
            hint="repair the driver, or name a site with --site",
        )
    directory = output / "site" / "detected"
    shutil.rmtree(directory, ignore_errors=True)
    write(detected.site, directory)
    print(
        f"busbar: no known site is this machine ({detected.site.description}); its facts"
        f" are in {directory}",
        file=sys.stderr,
    )
    return str(directory)


def _unmet(config: dict[str, Any], required: Sequence[str], plan: RunPlan) -> list[Outcome]:
    """A failed outcome for each required feature that no environment has."""
    has = {each["name"]: each["features"] for each in config["environments"]}
    missing = [name for name in required if not any(name in known for known in has.values())]
    there = "; ".join(f"{name} has {', '.join(known)}" for name, known in has.items())
    return [
        Outcome(
            check=f"require {name}",
            partition="",
            environment="",
            delivery="",
            lane=plan.lane,
            results=(
                Result(
                    f"require {name}",
                    Verdict.FAILED,
                    message=f"feature {name} is required and not here: {there}",
                ),
            ),
        )
        for name in missing
    ]


def _refuse_unknown(
    args: argparse.Namespace, config: dict[str, Any], describing: Describing
) -> None:
    """Raises ``BusbarError`` for a name, tag or feature that no check has.

    Checks that cannot be loaded are told of by the run, as a failure, or by the list.
    """
    try:
        known = describing.everything
    except BusbarError:
        if args.list:
            raise
        return
    names = sorted({check["display_name"] for check in known})
    for pattern in args.name:
        # A slash stands before ReFrame's hash of a check, which a description does not hold.
        if not pattern.startswith("/") and not any(_named(name, pattern) for name in names):
            _unknown("-n", pattern, sorted({name.split(" ")[0] for name in names}))
    tags = sorted({tag for check in known for tag in check["tags"]})
    for tag in args.tag:
        if tag not in tags:
            _unknown("-t", tag, tags)
    asked = {
        word[1:]
        for check in describing.ours
        for e in check["asked_environs"]
        for word in e.split()
    }
    features = sorted(asked.union(*(each["features"] for each in config["environments"])))
    for feature in args.require:
        if feature not in features:
            _unknown("--require", feature, features)


def _nothing_to_run(
    args: argparse.Namespace, tags: Sequence[str], reasons: Sequence[str] = ()
) -> Never:
    """Raise ``BusbarError`` with what was looked for and why none of it can run here."""
    options = [("-c", args.checks), ("-n", args.name), ("-t", tags)]
    selection = [f"{option} {value}" for option, values in options for value in values]
    raise BusbarError(
        f"no check can run here: {'; '.join(dict.fromkeys(reasons))}"
        if reasons
        else "no check matches",
        where=" ".join(selection),
        hint="see busbar check --list",
    )


def _unknown(option: str, given: str, known: Sequence[str]) -> Never:
    near = difflib.get_close_matches(given, known, n=3) or known
    raise BusbarError(
        f"no check has {given!r}", where=option, hint=f"there are, among others: {', '.join(near)}"
    )


def _chosen(found: Sequence[Match], names: Sequence[str], tags: Sequence[str]) -> list[Match]:
    return [
        each
        for each in found
        if (not names or any(_named(each.name, name) for name in names))
        and (not tags or set(tags) & set(each.tags))
    ]


def _named(check: str, pattern: str) -> bool:
    """As ``reframe -n`` reads it: ``test%parameter=value``, or a regular expression."""
    if "%" in pattern:
        test, *parameters = pattern.split("%")
        name = check.split(" ", 1)[0]
        return test == name and all(f"%{each}" in check for each in parameters)
    try:
        return bool(re.search(pattern, check))
    except re.error as error:
        raise BusbarError(f"{pattern!r} is no regular expression: {error}", where="-n") from error


def _skipped(
    plan: RunPlan, config: dict[str, Any], names: Sequence[str], describing: Describing
) -> list[Skipped]:
    """The checks that were wanted and could not run here, each with the reason.

    Checks that cannot be loaded have failed the run already.
    """
    try:
        found = describing.matches(config)
    except BusbarError:
        return []
    chosen = _chosen(found, names, plan.tags)
    return [{"check": m.name, "reason": m.reason} for m in chosen if not m.runs_in]


def _print_list(args: argparse.Namespace, matches: Sequence[Match]) -> int:
    listed = _chosen(matches, args.name, tuple(args.tag))
    if not listed:
        _nothing_to_run(args, args.tag)
    if args.json:
        rows = [{**asdict(match), "runs": bool(match.runs_in)} for match in listed]
        print(json.dumps(rows, indent=1))
        return 0
    print("\n".join(lines(listed)))
    return 0


def _document(plan: RunPlan, outcomes: Sequence[Outcome], skipped: list[Skipped]) -> CheckDocument:
    """What ``--json`` prints; keys are stable."""
    versions: dict[str, str | None] = {"mpi": None, "ucx": None, "gpu_driver": None}
    for outcome in outcomes:
        versions |= {name: value for name, value in outcome.versions.items() if value}
    rows: list[Any] = []
    for outcome in outcomes:
        for result in outcome.results:
            rows.append({**asdict(result), "share_of_limit": result.share_of_limit})
    return {
        "schema": "busbar-check/1",
        "site": plan.site.name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "delivery": next((o.delivery for o in outcomes if o.delivery), ""),
        "lane": next((o.lane for o in outcomes if o.delivery), plan.lane),
        "versions": versions,
        "results": rows,
        "causes": [{"check": o.check, **cause} for o in outcomes for cause in o.causes],
        "skipped": skipped,
        "notes": [{"check": o.check, **note} for o in outcomes for note in o.notes],
        "verdict": overall(outcomes),
    }
