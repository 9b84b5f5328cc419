# SPDX-License-Identifier: MIT
"""Accuse ports by what their counters grew during a sweep, however fast they were.

A link that was down accuses its port, and so do damaged blocks above a few. A lost packet is
normal on a shared network: its port must lose far more than the ports of most nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from statistics import quantiles

from busbar.cluster.sweep.accusation import Accusation, Fault
from busbar.parse.port_counters import Effect, PortCounter, counter_of
from busbar.words import counted, grouped

# The constants: value, meaning, and how to see what another value costs.
#   method  part of the method
_DAMAGED = 10  # method: blocks with errors; a healthy link has some in a day
_LOST = 100  # method: packets
_MORE = 10  # method: how many times what three quarters of the nodes lost at most
_FEWEST = 4  # method: nodes to compare losses with
_FAULTS: dict[Effect, Fault] = {"down": "flap", "errors": "errors", "loss": "loss"}


def port_faults(
    grown: Mapping[str, Mapping[str, int]], nics: Collection[str] = ()
) -> list[Accusation]:
    """Return the accused ports by node, place of the counter and growth.

    ``nics`` are the interfaces to consider; others, such as management interfaces, are left out.
    RDMA and Slingshot ports always count; the interface of ``cxi0`` is ``hsn0``.
    """
    names = {*nics, *(f"hsn{nic.removeprefix('cxi')}" for nic in nics if nic.startswith("cxi"))}
    counts: dict[PortCounter, dict[tuple[str, str], int]] = {}
    for node, places in grown.items():
        for place, more in places.items():
            if (found := counter_of(place)) and (
                not nics or not place.startswith("/sys/class/net/") or found[0] in names
            ):
                counts.setdefault(found[1], {})[node, found[0]] = more
    rows = (
        ((port, _FAULTS[counter.effect]), (counter, more))
        for counter, ports in counts.items()
        for port, more in ports.items()
        if more > _usual(counter, list(ports.values()), len(grown))
    )
    return list(_accusations(grouped(rows)))


def _usual(counter: PortCounter, counts: list[int], nodes: int) -> float:
    """Return the growth that is not a fault."""
    if counter.effect == "down":
        return 0
    if counter.effect == "errors":
        return _DAMAGED - 1
    if nodes < _FEWEST:
        return float("inf")
    most = quantiles([*counts, *([0] * (nodes - len(counts)))], n=4)[2]
    return max(_LOST - 1, _MORE * most)


def _accusations(
    found: Mapping[tuple[tuple[str, str], Fault], list[tuple[PortCounter, int]]],
) -> Iterator[Accusation]:
    for ((node, port), fault), rows in found.items():
        each = ", ".join(f"{counter.name} grew by {more:,}" for counter, more in rows)
        if fault == "flap":
            times = max(more for _, more in rows)
            each = f"its link went down {counted(times, 'time')} during the sweep: {each}"
        ways = {counter.direction for counter, _ in rows}
        direction = ways.pop() if len(ways) == 1 else ""
        yield Accusation(f"{node}/{port}", "port", each, (node,), direction, fault)
