# SPDX-License-Identifier: MIT
"""What nccl-tests and rccl-tests are asked to do: their options and the line that repeats them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeAlias

from busbar.engine.launch import powers
from busbar.parse import numbers
from busbar.parse.tables import beside

OPTIONS: Mapping[str, Mapping[str, Any]] = beside(__file__)
"""By the fields of `NcclOptions`: ``flags``, ``words`` for people, and the key in ``json``."""
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"(?P<number>\d{1,15})(?P<unit>[KMGT]?)B?$", re.IGNORECASE)


@dataclass(frozen=True)
class NcclOptions:
    """The options of a command line; None for those that depend on the version."""

    min_bytes: int | None = None
    max_bytes: int | None = None
    factor: int | None = None
    threads: int = 1
    gpus: int = 1
    iterations: int | None = None
    warmup: int | None = None
    check: int | None = None
    type: str = "float"
    redop: str = "sum"
    root: int = 0
    cycles: int = 1
    aggregated: int = 1
    graph: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of one sweep; empty if the options leave them open."""
        if not self.min_bytes or not self.max_bytes or not self.factor or self.factor < 2:
            return ()
        return powers(self.min_bytes, self.max_bytes, self.factor)


Parameters: TypeAlias = Mapping[str, int]
"""The line that begins ``# nThread``, by the names of `NcclOptions`, as far as a version prints
it."""

_PARAMETERS = re.compile(
    r"#\s*nThreads?:?\s+(?P<threads>\d{1,9})\s+nGpus:?\s+(?P<gpus>\d{1,9})"
    r"\s+minBytes:?\s+(?P<min_bytes>\d{1,18})\s+maxBytes:?\s+(?P<max_bytes>\d{1,18})"
    r"(?:\s+step:\s*(?P<step>\d{1,18})\((?P<kind>\w+)\))?"
    r"(?:\s+warmup iters:\s*(?P<warmup>\d{1,9}))?(?:\s+iters:\s*(?P<iterations>\d{1,9}))?"
    r"(?:\s+agg iters:\s*(?P<aggregated>\d{1,9}))?(?:\s+validation:\s*(?P<check>\d{1,9}))?"
    r"(?:\s+graph:\s*(?P<graph>\d{1,9}))?"
)
_REDUCED = re.compile(r"#\s*Reducing maxBytes to (?P<most>\d{1,18})\b")


def _size(text: str) -> int:
    match = _SIZE.match(text)
    if not match:
        raise argparse.ArgumentTypeError(f"invalid size {text!r}")
    return numbers.count(match["number"]) << _UNITS[match["unit"].upper()]


@cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    kinds: dict[str, Callable[[str], Any]] = {"type": str, "redop": str}
    kinds |= dict.fromkeys(("min_bytes", "max_bytes"), _size)
    for each in fields(NcclOptions):
        kind = kinds.get(each.name, int)
        flags = OPTIONS[each.name]["flags"]
        parser.add_argument(*flags, dest=each.name, type=kind, default=each.default)
    return parser


def parse_options(arguments: Sequence[str]) -> NcclOptions:
    """Parse what follows the program on its command line; unknown options are ignored."""
    try:
        known, _ = _parser().parse_known_args(list(arguments))
    except argparse.ArgumentError:
        return NcclOptions()  # the tool refuses them as well
    return NcclOptions(**vars(known))


def parse_parameters(line: str) -> Parameters | None:
    """Parse ``# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) ...``."""
    match = _PARAMETERS.match(line)
    if not match:
        return None
    printed = match.groupdict("")
    found = {name: numbers.count(printed[name]) for name in OPTIONS if printed.get(name)}
    if match["kind"]:  # with a step in bytes the factor is 1
        found["factor"] = numbers.count(match["step"]) if match["kind"] == "factor" else 1
    return found


def parse_reduced(line: str) -> int | None:
    """Parse ``# Reducing maxBytes to 1024 due to memory limitation``."""
    match = _REDUCED.match(line)
    return numbers.count(match["most"]) if match else None
