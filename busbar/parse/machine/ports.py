# SPDX-License-Identifier: MIT
"""Parse what tools say of network ports: ``ibstat``, ``fi_info``, and the rate files of Linux."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from busbar.parse import numbers


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


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: str
    active: bool
    gbit_per_s: int
    ethernet: bool


def parse_ibstat(text: str) -> tuple[Port, ...]:
    """Parse all ports."""
    ports: list[Port] = []
    for part in re.split(r"^CA '", text, flags=re.MULTILINE)[1:]:
        device = part.split("'", 1)[0]
        listed = re.search(r"^[ \t]*Number of ports: (?P<count>\d+)", part, re.MULTILINE)
        if listed and numbers.count(listed["count"]) != len(_ports(part)):
            raise ValueError(f"{device} has not all of its ports; the output is truncated")
        for number, body in _ports(part):
            state = re.search(r"^[ \t]*State: (?P<state>\S+)", body, re.MULTILINE)
            rate = re.search(r"^[ \t]*Rate: (?P<rate>\d+)", body, re.MULTILINE)
            if not state or not rate:
                raise ValueError(f"{device} port {number} has no state or rate")
            active = state["state"] == "Active"
            ethernet = bool(re.search(r"^[ \t]*Link layer: Ethernet\b", body, re.MULTILINE))
            ports.append(Port(device, active, numbers.count(rate["rate"]), ethernet))
    if not ports:
        raise ValueError("no port listed")
    return tuple(ports)


def parse_rate(text: str) -> int:
    """Return the Gbit/s of a sysfs ``rate`` file: ``400 Gb/sec (4X NDR)``."""
    rate = re.match(r"(?P<gbit>\d+)(?:\.\d+)? Gb/sec", text)
    if not rate:
        raise ValueError(f"invalid rate {text.strip()!r}")
    return numbers.count(rate["gbit"])


def _ports(part: str) -> list[tuple[int, str]]:
    pieces = re.split(r"^[ \t]*Port (?P<number>\d+):\s*$", part, flags=re.MULTILINE)[1:]
    return [(numbers.count(n), body) for n, body in zip(pieces[::2], pieces[1::2], strict=True)]
