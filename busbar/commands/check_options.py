# SPDX-License-Identifier: MIT
"""The options of ``busbar check``."""

from __future__ import annotations

import argparse
from pathlib import Path

from busbar.arguments import heading, option
from busbar.commands.declare import JOB, JSON, NAMES, PROMETHEUS, SITE, STACK, VERBOSE, output


def _existing(text: str) -> Path:
    path = Path(text).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text!r} does not exist")
    return path


OPTIONS = (
    SITE,
    JOB,
    option(
        "--nodelist NODES",
        "test each of these nodes by itself, then pairs of them, at the same time: all, or names"
        " as in n[3-8],n12 (default: the nodes of the job, else one node)",
        default="",
    ),
    STACK,
    heading(
        "an image",
        option(
            "--image FILE",
            "run the checks in this image: a SIF, a sandbox, or a name in the store of Docker or"
            " Podman",
            type=str,
        ),
        option(
            "--inject DIR...",
            "a library directory of the host that the image takes before its own, as with busbar"
            " preflight",
            type=str,
        ),
    ),
    heading(
        "which checks",
        option(
            "--require FEATURE...", "fail if no environment has this feature: osu, xccl, torch..."
        ),
        option(
            "--list",
            "print which checks can run, with the stack that a run would take, and why others"
            " cannot; if the site has no stack on this machine, with those that it declares",
        ),
        NAMES,
        option(
            "-t, --tag TAG...",
            "only checks with this tag: gate, nightly, full (default: gate, or with -n the first"
            " of these that the check has)",
        ),
        option(
            "-c, --checks PATH...",
            "file or directory of checks, instead of reframe_checks/",
            type=_existing,
        ),
        option(
            "-S, --setvar [CHECK.]VAR=VALUE...", "set a variable of the checks, as reframe -S does"
        ),
        option(
            "--max-retries N",
            "how often a check with readings below their band runs again, on the same nodes, and"
            " once more if its runs disagree",
            type=int,
            choices=range(10),
            default=1,
        ),
    ),
    heading(
        "what comes of it",
        option(
            "--require-bands", "end with exit status 1 instead of 3 if nothing could be judged"
        ),
        output("busbar-report", "directory for the report and the files of ReFrame"),
        option(
            "--keep-stage-files",
            "keep job scripts, programs and outputs of checks that passed, too",
        ),
        VERBOSE,
        option("--junit FILE", "write a JUnit file, one case per check and node"),
        PROMETHEUS,
        option("--summary", "print one line: verdict, coverage, what is wrong"),
        JSON,
    ),
)
