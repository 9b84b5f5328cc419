# SPDX-License-Identifier: MIT
"""The limit between two nodes through one port, for tools of which no reference run is known."""

from __future__ import annotations

from busbar.expect.errors import NoExpectation
from busbar.expect.topology import raw_rate
from busbar.site import Site, link_classes


def no_band_of_a_port(site: Site, partition: str | None, name: str = "") -> NoExpectation:
    """Return the error that says so, with the raw rate of the port (GB/s) as its limit.

    ``name`` is the NIC; empty for any of the node.
    """
    classes = link_classes(site)
    nics = [nic for nic in site.node_type(partition).nics if name in ("", nic.name)]
    rates = [raw_rate(nic.link_class, 1, classes) for nic in nics]
    return NoExpectation(
        "no reference of this test is known",
        where=f"site {site.name}",
        limit=max(rates, default=None),
    )
