# SPDX-License-Identifier: MIT
"""The pages that are one table or a few: causes, checks of the gate, sites and their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from busbar import site as sites
from busbar.expect.topology import domain_nodes
from busbar.explain.catalog import CAUSES, NOTES
from busbar.explain.page import page
from busbar.gate.site import CHECKS
from busbar.site.family import Family, LinkClasses
from busbar.site.model import Site

from .markdown import plain, table
from .schemas import schema_of, schema_tables

_KEYS = {
    "site/NAME/site.yaml": Site,
    "site/_families/FAMILY.yaml": Family,
    "site/_families/links.yaml": LinkClasses,
}


def causes_page() -> Iterator[str]:
    """Yield a table of all causes, one of all notes, and the page of each cause."""
    causes = ((f"[`{name}`](#{name})", entry.meaning) for name, entry in CAUSES.items())
    yield from table(("cause", "meaning"), causes)
    notes = ((f"`{name}`", meaning) for name, meaning in NOTES.items())
    yield from table(("note", "meaning"), notes)
    for name in CAUSES:
        yield from page(name)


def gate_page() -> Iterator[str]:
    """Yield one row for each check of the gate."""
    rows = (
        (
            *(f"`{name}`", plain(facts.title), facts.severity),
            *(f"`{facts.action}`", plain(facts.remedy)),
        )
        for name, facts in CHECKS.items()
    )
    return table(("check", "of", "severity", "action", "remedy"), rows)


def keys_page() -> Iterator[str]:
    """Yield every key of site.yaml, of a family and of links.yaml."""
    done: set[str] = set()
    for title, model in _KEYS.items():
        yield from (f"## {title}", "")
        yield from schema_tables(schema_of(model, "validation"), model.__name__, done)


def sites_page() -> Iterator[str]:
    """Yield one row for each site that ships."""
    rows = (_row(sites.load(name)) for name in sites.names())
    return table(("site", "hardware", "ports of a node", "scheduler", "proof"), rows)


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
