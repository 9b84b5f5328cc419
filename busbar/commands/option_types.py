# SPDX-License-Identifier: MIT
"""Types of options; a ``ValueError`` says what a value must be."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from busbar import units
from busbar.errors import BusbarError
from busbar.parse import numbers

_N = TypeVar("_N", int, float)
_MOST_SECONDS = 10**9
_STAGES = ("gate", "sweep", "check")


def _bounded(
    read: Callable[[str], _N | None], words: str, least: float, most: float = sys.float_info.max
) -> Callable[[str], _N]:
    """Return a type for numbers from ``least`` to ``most``; ``words`` describe them in errors."""

    def bounded(text: str) -> _N:
        number = read(text)
        if number is None or not least <= number <= most:
            raise ValueError(f"must be {words}, got {text!r}")
        return number

    return bounded


positive = _bounded(numbers.whole, "a positive integer", 1)
natural = _bounded(numbers.whole, "an integer, 0 or more", 0)
above_zero = _bounded(numbers.real, "a number above 0", math.ulp(0.0))
gb_per_s = _bounded(numbers.real, "a rate in GB/s above 0 (400 Gbit/s is 50)", math.ulp(0.0))
look_seconds = _bounded(numbers.real, "1 to 60 seconds", 1, 60)


def mask(text: str) -> int:
    """Return a mask, decimal or hexadecimal, such as ``7`` or ``0x7``."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,8}|0|[1-9][0-9]{0,8}", text):
        raise ValueError(f"must be a mask such as 0x7, got {text!r}")
    return int(text, 0)


def share(text: str) -> float:
    """Return a number from 0 to below 1, or a percentage such as ``20%``."""
    percent = text.endswith("%")
    number = numbers.real(text.removesuffix("%"))
    number = None if number is None else number / 100 if percent else number
    if number is None or not 0 <= number < 1:
        what = f"must be from 0 to below 1, or a percentage such as 20%, got {text!r}"
        raise ValueError(what)
    return number


def seconds(text: str) -> int:
    """Return a time above 0, such as ``10m``, ``1h30m`` or ``1:30:00``, in seconds."""
    number = round(units.duration(text))
    if not 0 < number <= _MOST_SECONDS:
        raise ValueError(f"{text!r} is not a time such as 10m or 1h30m")
    return number


def expected_version(text: str) -> tuple[str, str]:
    """Return name and version of ``nccl=2.28``."""
    name, equals, version = text.partition("=")
    if name not in ("nccl", "cuda", "ucx") or not version or not equals:
        raise ValueError(f"{text!r} is not nccl=, cuda= or ucx= and a version")
    return name, version


def stages(text: str) -> tuple[str, ...]:
    """Return the stages in a comma-separated list, in the order in which they run."""
    words = text.split(",")
    if unknown := [word for word in words if word not in _STAGES]:
        raise ValueError(f"{unknown[0]!r} is not a stage; choose from {','.join(_STAGES)}")
    return tuple(name for name in _STAGES if name in words)


def message_size(text: str) -> int:
    """Return the number of bytes of a size such as ``16M``."""
    size = units.parse_bytes(text)
    if not size:
        raise ValueError("must be at least 1 byte")
    return size


def nodes(text: str) -> str:
    """Return a list of nodes as Slurm writes them, or ``all``."""
    from busbar.slurm.hostlist import expand  # noqa: PLC0415 - loads ClusterShell

    try:
        return text if text in ("", "all") or expand(text, "") else ""
    except BusbarError as error:
        raise ValueError(str(error)) from error


def existing(text: str) -> Path:
    """Return the absolute path of a file or directory."""
    path = Path(text).resolve()
    if not path.exists():
        raise ValueError(f"{text!r} does not exist")
    if not (path.is_file() or path.is_dir()):
        raise ValueError(f"{text!r} is not a file or directory")
    return path
