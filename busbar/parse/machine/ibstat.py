# SPDX-License-Identifier: MIT
"""``ibstat``, and the rate files of `/sys/class/infiniband`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: str
    port: int
    active: bool
    gbit_per_s: int
    ethernet: bool


def parse_ibstat(text: str) -> tuple[Port, ...]:
    """Every port that ``ibstat`` lists."""
    ports: list[Port] = []
    for part in re.split(r"^CA '", text, flags=re.MULTILINE)[1:]:
        device = part.split("'", 1)[0]
        for number, body in _ports(part):
            state = re.search(r"^\s*State: (?P<state>\S+)", body, re.MULTILINE)
            rate = re.search(r"^\s*Rate: (?P<gbit>\d+)", body, re.MULTILINE)
            layer = re.search(r"^\s*Link layer: (?P<layer>\S+)", body, re.MULTILINE)
            if not state or not rate:
                raise ValueError(f"{device} port {number} has no state or rate")
            ethernet = bool(layer and layer["layer"] == "Ethernet")
            active = state["state"] == "Active"
            ports.append(Port(device, number, active, int(rate["gbit"]), ethernet))
    if not ports:
        raise ValueError("no port is listed")
    return tuple(ports)


def parse_rate(text: str) -> int:
    """Gbit/s of a sysfs ``rate`` file: ``400 Gb/sec (4X NDR)``."""
    rate = re.match(r"(?P<gbit>\d+)(?:\.\d+)? Gb/sec", text)
    if not rate:
        raise ValueError(f"{text.strip()!r} is no rate")
    return int(rate["gbit"])


def _ports(part: str) -> list[tuple[int, str]]:
    pieces = re.split(r"^\s*Port (?P<number>\d+):\s*$", part, flags=re.MULTILINE)[1:]
    return [(int(n), body) for n, body in zip(pieces[::2], pieces[1::2], strict=True)]
