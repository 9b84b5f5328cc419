# SPDX-License-Identifier: MIT
"""Parse ``fi_info``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class FabricInterface:
    """One entry of ``fi_info``."""

    provider: str
    domain: str
    type: str


_KEYS = tuple(field.name for field in fields(FabricInterface))


def parse_fi_info(text: str) -> tuple[FabricInterface, ...]:
    """Parse all entries, in libfabric's order of preference; indentation is ignored."""
    entries: list[dict[str, str]] = []
    for line in text.splitlines():
        field = re.match(rf"\s*(?P<key>{'|'.join(_KEYS)}): (?P<value>.*)$", line)
        if not field:
            continue
        if field["key"] == "provider":
            entries.append(dict.fromkeys(_KEYS, ""))
        if not entries:
            raise ValueError(f"{line.strip()!r} comes before any provider")
        entries[-1][field["key"]] = field["value"].strip()
    if not entries:
        raise ValueError("no provider listed")
    if cut := next((entry for entry in entries if not entry["type"]), None):
        raise ValueError(f"{cut['provider']} has no type; the output is truncated")
    return tuple(FabricInterface(**entry) for entry in entries)
