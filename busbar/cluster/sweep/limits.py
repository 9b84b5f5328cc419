# SPDX-License-Identifier: MIT
"""What a pair of nodes must reach: a share of the limit that a user states, or a site's band."""

from __future__ import annotations

from collections.abc import Iterable

from busbar.cluster.sweep.judge_pairs import Least
from busbar.errors import BusbarError
from busbar.expect import NoExpectation, Question, expect
from busbar.site import Site


def of_limit(
    limit: float, tolerance: float, nics: Iterable[str | None]
) -> dict[str | None, Least]:
    """Return the rates that pairs must reach, given the ``limit`` of their links.

    If all NICs were measured at once, the limit is for all of them and is divided by their number.
    """
    names = set(nics)
    whole = max(1, len(names) - 1) if None in names else 1
    parts = {nic: 1 if nic is None else whole for nic in names}
    return {
        nic: Least(
            limit / part * (1 - tolerance),
            f"{1 - tolerance:.0%} of the limit of {limit / part:.4g} GB/s is the minimum",
            limit / part * (1 + tolerance),
        )
        for nic, part in parts.items()
    }


def of_site(site: Site, nics: Iterable[str | None]) -> tuple[dict[str | None, Least], list[str]]:
    """Return the low end of the site's band by NIC, and notes on NICs without one."""
    found: dict[str | None, Least] = {}
    notes: list[str] = []
    for nic in nics:
        try:
            band = expect(site, _question(site, nic))
        except BusbarError as error:
            name = f"NIC {nic}" if nic else "all NICs at once"
            notes.append(f"site {site.name} has no band for {name} between nodes: {error.what}")
        else:
            text = f"the band of site {site.name} begins at {band.low:.4g} GB/s"
            found[nic] = Least(band.low, text, band.limit)
    return found, notes


def _question(site: Site, name: str | None) -> Question:
    """Return the benchmark that measures the same: one NIC between GPUs, or all NICs."""
    if name is None:
        return Question(bench="osu_mbw_mr", nodes=2)
    for nic in site.node.nics:
        if nic.name == name.partition(":")[0]:
            gpu = min(nic.near_gpus, default=0)
            return Question(bench="osu_bw", nodes=2, src=gpu, dst=gpu)
    names = ", ".join(nic.name for nic in site.node.nics) or "none"
    raise NoExpectation(f"it has no NIC of that name (known: {names})")
