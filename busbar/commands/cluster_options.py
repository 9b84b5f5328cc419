# SPDX-License-Identifier: MIT
"""Options that say which stack to run, and how Slurm gives the nodes: of several subcommands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from busbar.boundary import output_directory, refuse_unsafe
from busbar.commands.option_types import above_zero, seconds
from busbar.delivery.choice import DEFAULT_LANE, DELIVERY_ORDER, Choice
from busbar.errors import BusbarError
from busbar.slurm.options import Wish
from busbar.terminal import stderr


def add_site(parser: argparse.ArgumentParser) -> None:
    """Declare ``--site``."""
    parser.add_argument("--site", help="name or directory of a site (default: detected)")


def add_stack(parser: argparse.ArgumentParser) -> None:
    """Declare ``--lane``, ``--prefix`` and ``--delivery``."""
    parser.add_argument(
        "--lane",
        default=DEFAULT_LANE,
        help="UCX lane: ucx-1.14 or ucx-current (default: %(default)s)",
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


def choice_of(args: argparse.Namespace) -> Choice:
    """Return the stack that the options name."""
    return Choice(args.lane, args.prefix and args.prefix.absolute(), args.delivery)


def add_job(parser: argparse.ArgumentParser) -> None:
    """Declare how Slurm gives the nodes."""
    parser.add_argument("--partition", default="", help="partition of the site, if it has several")
    parser.add_argument(
        "--reservation", default="", metavar="NAME", help="submit to this reservation of Slurm"
    )
    parser.add_argument(
        "--sbatch",
        default="",
        metavar="OPTIONS",
        help="options of the jobs in addition to those of the site: --sbatch '--account=ops"
        " --qos=maint'",
    )
    parser.add_argument(
        "--max-pending",
        type=seconds,
        metavar="TIME",
        help="cancel a job that waits longer than this, as in 10m or 2h; what it would have"
        " measured counts as not run (default: wait)",
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Declare what the pairs of a sweep are compared with."""
    parser.add_argument(
        "--limit",
        type=above_zero,
        metavar="GBPS",
        help="GB/s that the links of a pair of nodes carry with all NICs, if they were measured at"
        " once; the sweep judges by it (default: the bands of the site)",
    )


def add_topology(parser: argparse.ArgumentParser, without: str) -> None:
    """Declare ``--topology``; ``without`` says what counts without it."""
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help=f"topology.conf or topology.yaml of Slurm ({without})",
    )


@contextmanager
def output_of(args: argparse.Namespace) -> Iterator[Path]:
    """Make the directory of ``--output``, which errors of the system in the block then name."""
    if args.site:
        refuse_unsafe(args.site, "--site")
    output = output_directory(args.output, "--output")
    try:
        yield output
    except OSError as error:
        raise BusbarError(
            f"cannot be used: {error.strerror or error}",
            where=str(error.filename or output),
            hint="make room, or choose another --output",
        ) from error


def tell(line: str) -> None:
    """Show a line of progress."""
    with suppress(OSError):  # nobody reads any more, but the run goes on
        stderr().line(f"busbar: {line}")


def wish_of(args: argparse.Namespace, nodelist: str = "") -> Wish:
    """Return which nodes the options name, and how to get them."""
    return Wish(args.partition, nodelist, args.reservation, args.sbatch, args.max_pending)
