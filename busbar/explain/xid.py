# SPDX-License-Identifier: MIT
"""NVIDIA's Xid codes: what each means and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from busbar.parse.messages import load_yaml

Kind = Literal["hardware", "driver", "application", "notice", "consequence", "unknown"]


@dataclass(frozen=True)
class Xid:
    """One code of the catalog."""

    kind: Kind
    meaning: str
    action: str


UNKNOWN = Xid(
    "unknown", "not in the catalog that Busbar has", "look it up in NVIDIA's Xid catalog"
)


@cache
def catalog() -> Mapping[int, Xid]:
    """Return all codes that are known."""
    rows = load_yaml(Path(__file__).with_name("xid.yaml"))
    return {code: Xid(**row) for code, row in rows.items()}
