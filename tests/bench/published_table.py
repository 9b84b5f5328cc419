# SPDX-License-Identifier: MIT
"""Print how published readings compare with limit and band, by class, and the power of the bands.

    make published

Whole runs are the readings of one system, collective, algorithm and number of ranks. A run is
found if a reading of it, times a factor, is degraded.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from unittest.mock import patch

from busbar.engine.verdicts import verdict_on
from busbar.expect import COLLECTIVES
from busbar.expect.topology import domain_nodes
from busbar.verdict import Verdict
from tests.bench.fit import fit, rows
from tests.expect.published import Comparison, Published, compare, readings, site_of

MIB = 1 << 20
LARGE = 20, 5
"""Readings and systems from which on a class has percentages."""


def nodes_of(row: Published) -> str:
    """Return the class of the number of nodes; one NVLink domain counts as one node."""
    domains = -(-row.nodes // domain_nodes(site_of(row.site, row.gpu, row.nodes).node))
    for most, name in ((1, "one node"), (4, "2 to 4 nodes"), (16, "5 to 16 nodes")):
        if domains <= most:
            return name
    return "above 16 nodes"


def size_of(row: Published) -> str:
    """Return the class of the message size."""
    if row.nbytes < MIB:
        return "below 1 MiB"
    return "1 to 64 MiB" if row.nbytes <= 64 * MIB else "above 64 MiB"


def vendor_of(row: Published) -> str:
    """Return the vendor of the GPUs."""
    return row.gpu.split()[0]


def runs(found: Iterable[Comparison]) -> list[list[Comparison]]:
    """Group the comparisons into whole runs."""
    groups: dict[tuple[object, ...], list[Comparison]] = defaultdict(list)
    for each in found:
        row = each.reading
        groups[row.system, row.bench, row.algo, row.nodes, row.gpus_per_node].append(each)
    return list(groups.values())


def degraded(each: Comparison, factor: float) -> bool:
    """Whether a reading times a factor is below each band that it may have."""
    value = factor * each.reading.value
    return bool(each.bands) and all(
        verdict_on(band, value) is Verdict.DEGRADED for band in each.bands
    )


def interval(hits: int, count: int) -> str:
    """Return a share with its Wilson interval of 95 %."""
    z, share = 1.96, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (share * (1 - share) / count + (z / (2 * count)) ** 2) ** 0.5
    return f"{100 * share:.0f} % ({100 * (middle - half):.0f}-{100 * (middle + half):.0f})"


def lines(name: str, found: list[Comparison]) -> Iterable[str]:
    """Yield the line of a class; of a small one also its readings."""
    banded = [each for each in found if each.expected]
    inside = [each for each in banded if each.place == "inside"]
    over = sum(each.place == "impossible" for each in found)
    systems = len({each.reading.system for each in found})
    shown = [f"{len(banded)}", f"{len(inside)}"]
    large = len(found) >= LARGE[0] and systems >= LARGE[1]
    if large and banded:
        shown = [interval(len(banded), len(found)), interval(len(inside), len(banded))]
    yield f"| {name} | {len(found)} of {systems} | {shown[0]} | {shown[1]} | {over} |"
    if not large:
        yield from (f"|   {described(each)} | | | | |" for each in found)


def described(each: Comparison) -> str:
    """Return a reading and its band in words."""
    row, band = each.reading, each.expected
    shown = f"{band.low:.4g} .. {band.typical:.4g} .. {band.high:.4g}" if band else "no band"
    return (
        f"{each.place}: {row.system} {row.nodes} x {row.gpus_per_node} {row.bench}"
        f" {row.algo or ''} {row.nbytes / MIB:g} MiB {row.value:g} {row.unit}: {shown}"
    )


def table(found: list[Comparison]) -> Iterable[str]:
    """Yield the table by class, the power of the bands, and the readings outside them."""
    ways: tuple[Callable[[Published], str], ...] = (nodes_of, vendor_of, size_of)
    yield "| class | readings of systems | with a band | of those inside | above the limit |"
    yield "|---|---|---|---|---|"
    yield from lines("all", found)
    for way in ways:
        for name in sorted({way(each.reading) for each in found}):
            yield from lines(name, [each for each in found if way(each.reading) == name])
    measured = [each for each in found if any(not band.outside for band in each.bands)]
    whole = runs(measured)
    healthy = [run for run in whole if not any(degraded(each, 1) for each in run)]
    condemned = len(whole) - len(healthy)
    yield f"whole runs with a band: {len(whole)}, degraded as published: {condemned}"
    for factor in (0.85, 0.7, 0.5):
        caught = sum(any(degraded(each, factor) for each in run) for run in whole)
        yield f"times {factor}: {interval(caught, len(whole))} of whole runs degraded"
    yield from (described(each) for each in found if each.expected and each.place != "inside")


def left_out() -> Iterable[Comparison]:
    """Compare the readings of each system with a model of all others, and no other band."""
    data = rows()
    everything = fit(data)
    for system in sorted({row.system for row in readings() if row.site}):
        others = [row for row in data if row.system != system]
        known = everything if len(others) == len(data) else fit(others, everything)
        with (
            patch("busbar.expect.collective.fitted", lambda known=known: known),
            patch("busbar.expect.collective._candidates", lambda _: []),
        ):
            yield from (
                compare.__wrapped__(row)
                for row in readings()
                if row.system == system and row.bench in COLLECTIVES
            )


def main() -> None:
    """Print the table of all measured readings, and the broken ones."""
    for name, found in (
        ("All bands", [compare(row) for row in readings() if row.site]),
        ("Collectives, by a model without the system", list(left_out())),
    ):
        sys.stdout.write(f"{name}\n")
        show(found)


def show(known: list[Comparison]) -> None:
    """Print the table, and whether the broken runs are below their bands."""
    found = list(table([each for each in known if each.reading.kind == "measured"]))
    broken = [each for each in known if each.reading.kind == "broken"]
    places = [each.place for each in broken if each.expected]
    below = places.count("below")
    found.append(f"broken: {len(places)} of {len(broken)} with a band, {below} below it")
    sys.stdout.write("\n".join(found) + "\n")


if __name__ == "__main__":
    main()
