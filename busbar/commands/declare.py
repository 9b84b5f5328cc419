# SPDX-License-Identifier: MIT
"""Declare commands with the options of ``options.yaml``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from busbar.arguments import Declaration, Parser, actions, described, option, together
from busbar.boundary import output_directory, refuse_unsafe
from busbar.check.surroundings import LOCK
from busbar.commands import option_types
from busbar.delivery.choice import DEFAULT_LANE, DELIVERY_ORDER, Choice
from busbar.document import to_json
from busbar.errors import BusbarError, file_error
from busbar.parse.tables import load_yaml
from busbar.slurm.options import Wish
from busbar.terminal import stderr, stdout
from busbar.units import moment
from busbar.verdict import EXIT_STATUSES


# ---- Options of several subcommands: the stack to run, the Slurm nodes, the output directory
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


# ---- Declarations
_T = TypeVar("_T")
Run = Callable[[argparse.Namespace], int]

_OPTIONS = load_yaml(Path(__file__).with_name("options.yaml"))
_TYPES = {"str": str, "Path": Path, "iso_time": moment} | vars(option_types)
_VALUES = {"DELIVERIES": DELIVERY_ORDER, "LANE": DEFAULT_LANE}


def command(
    subparsers: Any,
    run: Run,
    *,
    name: str = "",
    documented: Callable[..., object] | None = None,
    **values: Any,
) -> None:
    """Add a command; its help is the docstring of ``documented`` or ``run``.

    ``values`` are the values that its options refer to.
    """
    summary, text = described(documented or run, EXIT_STATUSES=EXIT_STATUSES)
    name = name or run.__name__.strip("_")
    parser = subparsers.add_parser(name, help=summary, description=text)
    for entry in _OPTIONS[parser.prog.removeprefix("busbar ")]:
        _declared(entry, _VALUES | values)(parser)
    parser.set_defaults(run=run, prog=parser.prog)


def _declared(entry: Any, values: Mapping[str, Any]) -> Declaration:
    """Return an entry of the file: an option, a group with a heading, or a name."""
    if isinstance(entry, str):
        if entry not in _OPTIONS["shared"]:
            return lambda parser: [each(parser) for each in values[entry]]
        return _declared(_OPTIONS["shared"][entry], values)
    (spec, text), *settings = entry.items()
    if isinstance(text, list):
        return together(spec, [_declared(each, values) for each in text])
    known = {
        key: _TYPES[value] if key == "type" else _value(value, values) for key, value in settings
    }
    return option(spec, text or argparse.SUPPRESS, **known)


def _value(value: Any, values: Mapping[str, Any]) -> Any:
    return values[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def show(
    args: argparse.Namespace,
    document: _T,
    text: Callable[[_T], None] | Iterable[str],
    indent: int = 1,
) -> None:
    """Print a document: as JSON with ``--json``, otherwise its lines, or through ``text``."""
    if args.json:
        stdout().document(to_json(document), indent=indent)
    elif callable(text):
        text(document)
    else:
        for line in text:
            stdout().line(line)


def group(subparsers: Any, name: str, text: str) -> Any:
    """Add a command that consists of actions; without one, it prints them."""
    parser: Parser = subparsers.add_parser(name, description=text)
    return actions(parser)
