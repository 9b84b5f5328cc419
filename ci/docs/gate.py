# SPDX-License-Identifier: MIT
"""The page of the gate's checks."""

from __future__ import annotations

from busbar.gate.site import CHECKS

from .markdown import plain, table

INTRO = """\
# Checks of the gate

What `busbar gate` checks, and what a fault means if the key `gate.checks` of the site does not say
otherwise ([sites.md](../sites.md#the-gate)). The mode of every check is `observe` by default.
"""


def gate_page() -> str:
    """One row for each check."""
    rows = (
        (
            *(f"`{name}`", plain(facts.title), facts.severity),
            *(f"`{facts.action}`", plain(facts.remedy)),
        )
        for name, facts in CHECKS.items()
    )
    head = ("check", "of", "severity", "action", "remedy")
    return "\n".join([INTRO, *table(head, rows)])
