# SPDX-License-Identifier: MIT
"""NVIDIA's Xid codes: what each means and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from busbar.gate.site import Xid
from busbar.parse.tables import beside


@cache
def catalog() -> Mapping[int, Xid]:
    """Return all codes that are known."""
    return {code: Xid(**row) for code, row in beside(__file__).items()}
