# SPDX-License-Identifier: MIT
"""NVIDIA's Xid codes: what each means and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from busbar.gate.site import Xid
from busbar.parse.tables import load_yaml


@cache
def catalog() -> Mapping[int, Xid]:
    """Return all codes that are known."""
    rows = load_yaml(Path(__file__).with_name("xid.yaml"))
    return {code: Xid(**row) for code, row in rows.items()}
