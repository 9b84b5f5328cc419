# SPDX-License-Identifier: MIT
"""``busbar gate``: check in seconds whether this node may take jobs."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from busbar.gate.output import document, node_verdict, show, write_metrics
from busbar.gate.run import Options, Result, run
from busbar.gate.slurm import Slurm, from_environment
from busbar.gate.upkeep import COMMANDS_S, drain_node, resume_node
from busbar.redact import redact
from busbar.terminal import stderr, stdout

EXIT_FAULT = 1
_LEAST_S, _MOST_S = 2.0, 3600.0
_EXIT = (
    "Exit status: 0 the node may take jobs, or nothing certain is known against it; 1 a fault that"
    " the site enforces; 2 invalid options, but 0 in a prolog or epilog, so that a wrong option"
    " drains no node."
)


def add_parser(subparsers: Any) -> None:
    """Add ``busbar gate``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "gate",
        description=(
            "Read the state of this node and move bytes over each link of its GPUs, and judge both"
            f" by the site. docs/gate.md shows how Slurm runs it. {_EXIT}"
        ),
    )
    parser.add_argument(
        "--site",
        help="name or directory of the site (default: the site with the name of the cluster)",
    )
    parser.add_argument("--partition", help="partition of this node (default: that of the job)")
    parser.add_argument(
        "--passive", action="store_true", help="only read the state; takes less than 2 s"
    )
    parser.add_argument(
        "--deadline",
        type=_seconds,
        default=45.0,
        metavar="S",
        help="seconds until the gate reports what it knows (default: %(default)g)",
    )
    parser.add_argument(
        "--drain", action="store_true", help="drain this node by scontrol if it has a fault"
    )
    parser.add_argument(
        "--recheck",
        action="store_true",
        help="resume this node if the gate drained it and its fault is gone",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=["text", "json", "nodeverdict"],
        default="text",
        help="output; nodeverdict uses the words of NVIDIA Health Validation (default: text)",
    )
    form.add_argument(
        "--json", dest="format", action="store_const", const="json", help="print JSON"
    )
    parser.add_argument(
        "--prometheus",
        type=Path,
        metavar="FILE",
        help="write metrics for node_exporter's textfile collector; FILE ends in .prom",
    )
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST_S <= value <= _MOST_S:
        raise argparse.ArgumentTypeError(
            f"must be {_LEAST_S:g} to {_MOST_S:g} seconds, got {text!r}"
        )
    return value


def _run(args: argparse.Namespace) -> int:
    """Run the gate; return EXIT_FAULT for a fault of the node, never for an error of the gate."""
    status = 0
    try:
        slurm = from_environment()
        commands = (args.drain + args.recheck) * COMMANDS_S
        result = run(
            Options(
                slurm=slurm,
                site=args.site,
                partition=args.partition,
                passive=args.passive,
                deadline_s=max(args.deadline - commands, _LEAST_S),
            )
        )
        status = EXIT_FAULT if result.faults else 0
        _report(args, result)
        _act(args, result, slurm)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:  # noqa: BLE001 - an internal error must not drain the node
        with contextlib.suppress(OSError):
            stderr().line(f"busbar gate: internal error: {redact(repr(error))[:300]}")
    return status


def _report(args: argparse.Namespace, result: Result) -> None:
    if args.prometheus:
        try:
            write_metrics(result, args.prometheus)
        except OSError as error:
            what = error.strerror or error
            stderr().line(f"busbar gate: {args.prometheus}: cannot be written: {what}")
    if args.format == "json":
        stdout().document(document(result), indent=2)
    elif args.format == "nodeverdict":
        stdout().document(node_verdict(result), indent=2)
    else:
        show(result, stdout())


def _act(args: argparse.Namespace, result: Result, slurm: Slurm) -> None:
    if (args.drain or args.recheck) and slurm.in_prolog:
        stderr().line(
            "busbar gate: --drain and --recheck do nothing in a prolog or epilog, whose exit"
            " status drains the node"
        )
        return
    if args.drain and result.faults:
        stderr().line(f"busbar gate: {drain_node(result, slurm)}")
    if args.recheck:
        stderr().line(f"busbar gate: {resume_node(result, slurm)}")
