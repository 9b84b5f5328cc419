# SPDX-License-Identifier: MIT
"""``fi_info``."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Endpoint:
    """One entry of the list."""

    provider: str
    fabric: str
    domain: str
    version: str
    type: str
    protocol: str


def parse_fi_info(text: str) -> tuple[Endpoint, ...]:
    """Every entry, in order of libfabric's preference; the indent of the lines does not matter."""
    entries: list[dict[str, str]] = []
    for line in text.splitlines():
        field = re.match(
            r"\s*(?P<key>provider|fabric|domain|version|type|protocol): (?P<value>.*)$", line
        )
        if not field:
            continue
        if field["key"] == "provider":
            entries.append({})
        if not entries:
            raise ValueError(f"{line.strip()!r} comes before any provider")
        entries[-1][field["key"]] = field["value"].strip()
    if not entries:
        raise ValueError("no provider is listed")
    keys = ("provider", "fabric", "domain", "version", "type", "protocol")
    return tuple(Endpoint(*(entry.get(key, "") for key in keys)) for entry in entries)
