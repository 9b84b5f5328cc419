# SPDX-License-Identifier: MIT
"""``busbar explain``: why a run is slow or failed, from what the tools printed."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

from busbar.document import to_json
from busbar.engine.run import Run
from busbar.errors import BusbarError
from busbar.explain import explain
from busbar.explain.catalog import CAUSES
from busbar.explain.page import page
from busbar.explain.render import print_explanations
from busbar.site import load
from busbar.terminal import stderr, stdout
from busbar.verdict import EXIT_STATUSES, combined, exit_status


def add_parser(subparsers: Any) -> None:
    """Add ``busbar explain``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "explain",
        description=(
            "Read the outputs of one job (stdout, stderr, NCCL_DEBUG_FILE of each rank, the"
            " scheduler's log; plain, gzip, bzip2 or xz; with any prefix of a launcher or log"
            " collector before each line) and name what ran, the verdict, and the causes with"
            f" the lines that show them. {EXIT_STATUSES}"
        ),
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="an output of the job, a directory of them, or - for standard input",
    )
    parser.add_argument(
        "--cause", metavar="ID", help="print the page of a cause instead of reading files"
    )
    parser.add_argument(
        "--site",
        help="name or directory of the site whose bands judge the readings (default: detected"
        " from the output)",
    )
    parser.add_argument(
        "--partition",
        help="the partition of the site that the job ran in (default: detected from the output)",
    )
    parser.add_argument(
        "--engine",
        choices=("sdma", "kernel"),
        help="what copies between AMD GPUs (default: detected from the output)",
    )
    for option, text in (
        ("--expect-version", "a version that should run: nccl=2.28, cuda=12.2, ucx=1.14"),
        ("--asked", "deprecated name of --expect-version"),
    ):
        parser.add_argument(
            option,
            action="append",
            default=[],
            type=_version,
            metavar="NAME=VERSION",
            help=f"{text} (repeatable)",
        )
    parser.add_argument(
        "--json", action="store_true", help="print JSON: an object, or a list for several runs"
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print every reading and every line of evidence",
    )
    parser.set_defaults(run=run)


def _version(text: str) -> tuple[str, str]:
    name, equals, version = text.partition("=")
    if name not in ("nccl", "cuda", "ucx") or not version or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not nccl=, cuda= or ucx= and a version")
    return name, version


def _print_page(cause: str) -> int:
    if cause not in CAUSES:
        near = ", ".join(difflib.get_close_matches(cause, CAUSES))
        raise BusbarError(
            f"no cause {cause!r}",
            where="--cause",
            hint=f"did you mean {near}?" if near else "see docs/reference/causes.md",
        )
    stdout().text("\n".join(page(cause)).rstrip() + "\n")
    return 0


def run(args: argparse.Namespace) -> int:
    """Explain and print."""
    if args.cause:
        return _print_page(args.cause)
    if not args.files:
        raise BusbarError("no files given", hint="name an output of the job, or use --cause ID")
    site = load(args.site) if args.site else None
    if site and args.partition:
        site.node_type(args.partition)  # refuses one that the site does not have
    known = Run(site=site, partition=args.partition, engine=args.engine)
    if args.asked:
        stderr().line("busbar explain: --asked is deprecated, use --expect-version")
    versions = dict(args.asked + args.expect_version)
    explanations = explain(args.files, known=known, asked=versions)
    if args.json:
        documents = to_json(explanations)
        stdout().document(documents[0] if len(documents) == 1 else documents)
    else:
        print_explanations(explanations, stdout(), verbose=args.verbose)
    return exit_status(combined(each.verdict for each in explanations))
