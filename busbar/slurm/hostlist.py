# SPDX-License-Identifier: MIT
"""Names of nodes as Slurm writes them: ``gpu[001-128],login1``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from busbar.errors import BusbarError
from busbar.parse import numbers

MOST_NODES = 100_000
_MOST_CHARACTERS = 1 << 20
# ClusterShell knows operators, groups, steps and negative numbers beyond Slurm's lists, and groups
# may run commands.
_RANGE = r"[0-9]{1,18}(?:-[0-9]{1,18})?"
_RANGES = re.compile(rf"\[(?P<ranges>{_RANGE}(?:,{_RANGE})*)\]")
_ITEM = re.compile(rf"(?:[\w.-]|{_RANGES.pattern.replace('?P<ranges>', '?:')})+", re.ASCII)
_NAME = re.compile(r"[\w.-]+", re.ASCII)
_PARTS = re.compile(r"(?P<text>[^0-9]*)(?P<digits>[0-9]*)")
_HINT = "use Slurm's syntax, such as gpu[001-128],login1"


def expand(text: str, where: str) -> list[str]:
    """Return the names in a list, sorted by prefix and number, each once.

    Raise ``BusbarError`` for a list that Slurm would refuse, or of more than `MOST_NODES` names.
    """
    text = text.strip()
    what = f"{text[:80]!r} is not a list of nodes"
    items = list(_ITEM.finditer(text)) if len(text) <= _MOST_CHARACTERS else []
    if ",".join(item.group() for item in items) != text or not text:
        what += ": missing bracket" * (text.count("[") != text.count("]"))
        raise BusbarError(what, where=where, hint=_HINT)
    if sum(_size(item.group()) for item in items) > MOST_NODES:
        many = f"{text[:80]!r} has more than {MOST_NODES:,} nodes"
        raise BusbarError(many, where=where, hint="select fewer nodes")
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError, AssertionError) as error:
        raise BusbarError(f"{what}: {error}", where=where, hint=_HINT) from error


def hostnames(nodes: str) -> tuple[str, ...]:
    """Return the nodes of a list from Slurm such as ``n[1-4],m7``; else the list itself."""
    try:
        return tuple(expand(nodes, "the nodes of a job"))
    except BusbarError:  # shown as Slurm wrote it
        return (nodes,)


def fold(nodes: Iterable[str]) -> str:
    """Return names as one list, such as ``gpu[001-128]``; names of other forms are joined."""
    names = list(nodes)
    if not all(_NAME.fullmatch(name) for name in names):
        return ",".join(names)
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts ``n2`` before ``n10``."""
    return tuple((m["text"], numbers.count(m["digits"])) for m in _PARTS.finditer(name))


def _size(item: str) -> int:
    """Return an upper bound of the names in one item, without expanding it."""
    return math.prod(
        sum(_length(*part.split("-")) for part in match["ranges"].split(","))
        for match in _RANGES.finditer(item)
    )


def _length(first: str, last: str = "") -> int:
    return max(1, int(last or first) - int(first) + 1)
