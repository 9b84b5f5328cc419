# SPDX-License-Identifier: MIT
"""What options of several subcommands mean: the stack to run, the nodes of Slurm, the output."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from busbar.boundary import output_directory, refuse_unsafe
from busbar.check.surroundings import LOCK
from busbar.delivery.choice import Choice
from busbar.errors import BusbarError, file_error
from busbar.slurm.options import Wish
from busbar.terminal import stderr


def choice_of(args: argparse.Namespace) -> Choice:
    """Return the stack that the options name."""
    return Choice(args.lane, args.prefix and args.prefix.absolute(), args.delivery)


@contextmanager
def output_of(args: argparse.Namespace) -> Iterator[Path]:
    """Make the directory of ``--output``, which errors of the system in the block then name.

    A new one is removed if the command is refused before it has written anything.
    """
    is_new = not args.output.exists()
    if args.site:
        refuse_unsafe(args.site, "--site")
    output = output_directory(args.output, "--output")
    try:
        with file_error("cannot be used", hint="make room, or choose another --output"):
            yield output
    except BusbarError:
        if is_new and {*os.listdir(output)} <= {LOCK}:
            (output / LOCK).unlink(missing_ok=True)
            output.rmdir()
        raise


def tell(line: str) -> None:
    """Show a line of progress."""
    with suppress(OSError):  # nobody reads any more, but the run goes on
        stderr().line(f"busbar: {line}")


def wish_of(args: argparse.Namespace, nodelist: str = "") -> Wish:
    """Return which nodes the options name, and how to get them."""
    return Wish(args.partition, nodelist, args.reservation, args.sbatch, args.max_pending)
