# SPDX-License-Identifier: MIT
"""Declares commands, and the options that several of them have."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from busbar.arguments import Declaration, Parser, actions, described, heading, option
from busbar.commands.option_types import above_zero, seconds
from busbar.delivery.choice import DEFAULT_LANE, DELIVERY_ORDER
from busbar.verdict import EXIT_STATUSES

Run = Callable[[argparse.Namespace], int]

JSON = option("--json", "print one JSON document")
SITE = option("--site SITE", "name or directory of a site (default: detected)")
SITE_NEEDED = option("--site SITE", "name or directory of a site", required=True)
SITE_NAME = option("SITE", "name or directory of a site", dest="name")
ANY_LANE = option("--lane LANE", "UCX lane: ucx-1.14 or ucx-current (default: any)")
ENGINE = option(
    "--engine",
    "what copies between AMD GPUs: their DMA engines (sdma) or their compute units (kernel)"
    " (default: that of the log, else the family's)",
    choices=("sdma", "kernel"),
)
VERBOSE = option("-v, --verbose", "print every reading, reason and line of evidence")
NAMES = option(
    "-n, --name NAME...",
    "only checks of this name, as `busbar check --list` or ReFrame prints it, or a regular"
    " expression; without -t in their smallest set of sizes",
)
LANE = option(
    "--lane LANE",
    "the version of UCX that the stack has: ucx-1.14 or ucx-current",
    default=DEFAULT_LANE,
)
PREFIX = option(
    "--prefix DIR",
    "a directory in which osu-micro-benchmarks, nccl-tests and so on, or an MPI, are installed",
)
STACK = heading(
    "the stack to run",
    LANE,
    PREFIX,
    option(
        "--delivery",
        "which delivery of site.yaml to use (default: the first that is installed)",
        choices=DELIVERY_ORDER,
    ),
)
NODELIST = option(
    "--nodelist NODES", "only these nodes: n[3-8],n12 (default: all of the partition)", default=""
)
JOB = heading(
    "how Slurm gives the nodes",
    option("--partition NAME", "partition of the site, if it has several", default=""),
    option("--reservation NAME", "submit to this reservation of Slurm", default=""),
    option(
        "--sbatch OPTIONS",
        "options of the jobs in addition to those of the site: --sbatch '--account=ops --qos=low'",
        default="",
    ),
    option(
        "--max-pending TIME",
        "cancel a job that waits longer than this, as in 10m or 2h; what it would have measured"
        " counts as not run (default: wait)",
        type=seconds,
    ),
)
LIMIT = option(
    "--limit GBPS",
    "GB/s that the links of a pair of nodes carry with all NICs, if they were measured at once;"
    " the sweep judges by it (default: the bands of the site)",
    type=above_zero,
)
PROMETHEUS = option(
    "--prometheus FILE", "write metrics for node_exporter's textfile collector; ends in .prom"
)


def topology(without: str) -> Declaration:
    """Declare ``--topology``; ``without`` says what counts without it."""
    return option("--topology FILE", f"topology.conf or topology.yaml of Slurm ({without})")


def output(default: str, text: str) -> Declaration:
    """Declare the directory that a command writes."""
    return option("--output DIR", text, default=default)


def command(
    subparsers: Any,
    run: Run,
    *options: Declaration,
    name: str = "",
    documented: Callable[..., object] | None = None,
) -> None:
    """Add a command; its help is the docstring of ``documented``, else that of ``run``."""
    summary, text = described(documented or run, EXIT_STATUSES=EXIT_STATUSES)
    name = name or run.__name__.strip("_")
    parser = subparsers.add_parser(name, help=summary, description=text)
    for each in options:
        each(parser)
    parser.set_defaults(run=run, prog=parser.prog)


def group(subparsers: Any, name: str, text: str) -> Any:
    """Add a command that consists of actions; alone it prints them."""
    parser: Parser = subparsers.add_parser(name, description=text)
    return actions(parser)
