# SPDX-License-Identifier: MIT
"""Options of several subcommands: the stack to run, the Slurm nodes, the output directory."""

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
    """Return the stack selected by the options."""
    return Choice(args.lane, args.prefix and args.prefix.absolute(), args.delivery)


@contextmanager
def output_of(args: argparse.Namespace) -> Iterator[Path]:
    """Create the ``--output`` directory; system errors in the block name it.

    A new directory is removed if the command is refused before it has written anything.
    """
    is_new = not args.output.exists()
    if args.site:
        refuse_unsafe(args.site, "--site")
    output = output_directory(args.output, "--output")
    try:
        with file_error("cannot be used", hint="free some space, or choose another --output"):
            yield output
    except BusbarError:
        if is_new and {*os.listdir(output)} <= {LOCK}:
            (output / LOCK).unlink(missing_ok=True)
            output.rmdir()
        raise


def tell(line: str) -> None:
    """Print a line of progress."""
    with suppress(OSError):  # the reader is gone, but the run continues
        stderr().line(f"busbar: {line}")


def wish_of(args: argparse.Namespace, nodelist: str = "") -> Wish:
    """Return the nodes that the options select, and how to allocate them."""
    return Wish(args.partition, nodelist, args.reservation, args.sbatch, args.max_pending)
