# SPDX-License-Identifier: MIT
"""Write the commands that drain the nodes that a sweep accuses; Busbar runs none of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping

from busbar.cluster.sweep.analyse import Accusation
from busbar.slurm.nodes import drain_command

_PREFIX = "[node_problem] busbar sweep: "
_LONGEST = 250
"""Slurm's accounting keeps 255 bytes of a reason."""
_ONE_NODE = re.compile(r"(?!all$)[\w.-]+", re.ASCII | re.IGNORECASE)
"""``scontrol`` takes other names for lists, and ALL for every node."""


def script(accused: Iterable[Accusation], gone: Mapping[str, str], nodes: Collection[str]) -> str:
    """Return a script of ``scontrol update``; faults of several nodes are comments in it.

    If it would drain more than half of the ``nodes``, its commands are comments too: a wrong limit
    accuses a whole fleet.
    """
    lines = ["#!/bin/sh", "# Written by busbar sweep run. Read it before you run it."]
    reasons: dict[str, str] = {}
    for one in accused:
        if len(one.nodes) == 1:
            reasons.setdefault(one.nodes[0], f"{one.kind} {one.id}: {one.evidence}")
        else:
            lines.append(f"# {one.kind} {plain(one.id)}: {plain(one.evidence)}")
    for node, why in gone.items():
        reasons.setdefault(node, why)
    most = len(reasons) * 2 > len(nodes)
    if most:
        lines.append(
            f"# {len(reasons)} of {len(nodes)} nodes are accused or lost: check --limit and the"
            " network before you drain them. The commands are commented out."
        )
    for node, why in reasons.items():
        valid = _ONE_NODE.fullmatch(node) is not None
        line = command(node, why) if valid else f"not the name of one node: {plain(node)}"
        lines.append(f"# {line}" if most or not valid else line)
    return "\n".join([*lines, *(() if reasons else ("# no node to drain",)), ""])


def command(node: str, why: str) -> str:
    """Return the command that drains a node, for a POSIX shell."""
    reason = (_PREFIX + plain(why))[:_LONGEST].rstrip()
    return shlex.join(drain_command(node, reason))


def plain(text: str) -> str:
    """Return printable ASCII of one line, without what a shell or Slurm reads as more."""
    return "".join(
        c if c.isascii() and c.isprintable() and c not in "'\"\\`$|" else " " for c in text
    )
