# SPDX-License-Identifier: MIT
"""Read JSON that others wrote: the only exception is ``ValueError``, all numbers are finite."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

_DIGITS = 20
"""Digits of an integer of 64 bits, with its sign."""


def load_json(text: str) -> Any:
    """Parse JSON; raise ``ValueError`` also for deep nesting and for numbers out of range."""
    try:
        return json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _int(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"a number is out of range: {text[:40]}")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
