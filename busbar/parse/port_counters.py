# SPDX-License-Identifier: MIT
"""Counters of network ports: where the kernel shows each, and what it means when it grows.

The gate reads them on its node, and a sweep on all nodes before and after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pkgutil import get_data
from typing import Literal, NamedTuple

from busbar.parse import numbers

Effect = Literal["down", "errors", "loss"]
Direction = Literal["", "sending", "receiving"]


class PortCounter(NamedTuple):
    """One counter."""

    place: str
    """Pattern of its file, or ``ethtool/*/NAME``."""
    effect: Effect
    """The link was down, a block arrived damaged, or a packet was lost or sent again."""
    direction: Direction = ""
    """Of the traffic that suffers, seen from the node; empty for both."""

    @property
    def name(self) -> str:
        """The kernel's or the driver's name."""
        return self.place.rpartition("/")[2]


DRIVER = "ethtool"
"""What ``ethtool -S`` prints of an interface has no file."""
_TABLE = numbers.load_json(get_data(__name__, "port_counters.json") or "")
COUNTERS = tuple(
    PortCounter(f"{directory}/{name}", *facts)
    for directory, counters in _TABLE.items()
    for name, facts in counters.items()
)
_BY_NAME = {counter.name: counter for counter in COUNTERS}
_PORT = re.compile(r"(?:/sys/class/(?:infiniband|net|cxi)|ethtool)/(?P<device>[^/]+)/(?P<rest>.+)")
_NUMBERED = re.compile(r"ports/(?P<port>\d+)/")


def counter_of(place: str) -> tuple[str, PortCounter] | None:
    """Return the port and the counter of a file or ``ethtool/INTERFACE/NAME``; None for others.

    The first port of an RDMA device has the name of the device, others ``mlx5_0/2``.
    """
    match = _PORT.fullmatch(place)
    counter = _BY_NAME.get(place.rpartition("/")[2])
    if not match or not counter:
        return None
    port = _NUMBERED.match(match["rest"])
    other = f"/{port['port']}" if port and port["port"] != "1" else ""
    return match["device"] + other, counter


def parse_counters(text: str) -> dict[str, int]:
    """Return the values by place of ``PLACE=VALUE`` words; others are left out."""
    words = (word.rpartition("=") for word in text.split())
    return {place: numbers.count(value) for place, _, value in words if numbers.is_whole(value)}


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return by how much values grew; one that is lower was reset, and counts from zero."""
    grown = {
        place: value - (before.get(place, 0) if before.get(place, 0) <= value else 0)
        for place, value in after.items()
    }
    return {place: more for place, more in grown.items() if more}
