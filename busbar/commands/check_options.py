# SPDX-License-Identifier: MIT
"""The options of ``busbar check``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from busbar.commands.cluster_options import add_job, add_site, add_stack


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    several = partial(parser.add_argument, action="append", default=[])
    add_site(parser)
    add_job(parser)
    _add_nodes(parser)
    add_stack(parser)
    parser.add_argument(
        "--image",
        metavar="FILE",
        help="run the checks in this image: a SIF, a sandbox, an OCI archive, or a name in the"
        " store of Docker or Podman",
    )
    several(
        "--inject",
        metavar="DIR",
        help="a library directory of the host that the image takes before its own, as with"
        " busbar preflight (repeatable)",
    )
    several(
        "--require",
        metavar="FEATURE",
        help="fail if no environment has this feature: osu, xccl, torch... (repeatable)",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print which checks can run, with the stack that a run would take, and why others"
        " cannot; if the site has no stack on this machine, with those that it declares",
    )
    several(
        "-n",
        "--name",
        help="only checks of this name, as --list or ReFrame prints it, or a regular expression"
        " (repeatable); without -t in their smallest set of sizes",
    )
    several(
        "-t",
        "--tag",
        help="only checks with this tag: gate, nightly, full (repeatable; default: gate, or with"
        " -n the first of these that the check has)",
    )
    several(
        "-c",
        "--checks",
        type=_existing,
        metavar="PATH",
        help="file or directory of checks, instead of reframe_checks/ (repeatable)",
    )
    several(
        "-S",
        "--setvar",
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
    parser.add_argument(
        "--keep-stage-files",
        action="store_true",
        help="keep job scripts, programs and outputs of checks that passed, too",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print all readings, reasons and skips"
    )
    parser.add_argument(
        "--junit",
        type=Path,
        metavar="FILE",
        help="write a JUnit file, one case per check and node",
    )
    parser.add_argument(
        "--prometheus",
        type=Path,
        metavar="FILE",
        help="write verdicts, readings and bands for node_exporter's textfile collector",
    )
    parser.add_argument(
        "--summary", action="store_true", help="print one line: verdict, coverage, what is wrong"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    """Declare which nodes of a cluster to test."""
    parser.add_argument(
        "--nodes",
        choices=["all"],
        help="test every node by itself, then pairs of nodes, at the same time; inside an"
        " allocation this is the default for its nodes",
    )
    parser.add_argument(
        "--nodelist",
        default="",
        metavar="NODES",
        help="test these nodes only, as --nodes all does: n[3-8],n12",
    )


def _existing(text: str) -> Path:
    path = Path(text).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text!r} does not exist")
    return path
