# SPDX-License-Identifier: MIT
"""The page of the sites that ship."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from busbar import site as sites
from busbar.expect.topology import domain_nodes
from busbar.site.model import Site

from .markdown import plain, table

INTRO = """\
# Sites that ship

A site stands for a type of system; account, queues and names of ports differ.
`busbar site show NAME` prints all facts of one, and
`busbar site detect --like NAME --output DIR/MINE` copies it.
[sites.md](../limit-and-band.md#the-rules-in-full) explains the proof.
"""


def sites_page() -> str:
    """One row for each site."""
    rows = (_row(sites.load(name)) for name in sites.names())
    head = ("site", "hardware", "ports of a node", "scheduler", "proof")
    return "\n".join([INTRO, *table(head, rows)])


def _row(site: Site) -> Iterator[str]:
    yield f"`{site.name}`"
    yield plain(site.description)
    counts: Counter[str] = Counter()
    for nic in site.node.nics if site.name != "local" else ():
        counts[nic.link_class] += nic.count
    domain = domain_nodes(site.node)
    inside = [f"NVLink to {domain} nodes"] if domain > 1 else []
    yield ", ".join([*inside, *(f"{n} x {name}" for name, n in counts.items())]) or "none"
    yield site.scheduler
    yield site.proof
