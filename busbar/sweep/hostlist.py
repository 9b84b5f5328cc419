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
# ClusterShell knows operators and groups beyond Slurm's lists, and groups may run commands.
_ALLOWED = re.compile(r"[\w.,\[\]-]+", re.ASCII)
_ITEM = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")
_BRACKET = re.compile(r"\[(?P<ranges>[^\]]*)")
_RANGE = re.compile(r"(?P<first>[0-9]+)-(?P<last>[0-9]+)")
_PARTS = re.compile(r"(?P<text>[^0-9]*)(?P<digits>[0-9]*)")
_HINT = "write node names as Slurm does, such as gpu[001-128],login1"


def expand(text: str, where: str) -> list[str]:
    """Return the names in a list, sorted by prefix and number, each once.

    Raise ``BusbarError`` for a list that Slurm would refuse, or of more than `MOST_NODES` names.
    """
    text = text.strip()
    if not _ALLOWED.fullmatch(text):
        raise BusbarError(f"{text[:80]!r} is not a list of nodes", where=where, hint=_HINT)
    if sum(_size(item.group()) for item in _ITEM.finditer(text)) > MOST_NODES:
        what = f"{text[:80]!r} has more than {MOST_NODES:,} nodes"
        raise BusbarError(what, where=where, hint="name a part of them")
    try:
        return list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        what = f"{text[:80]!r} is not a list of nodes: {error}"
        raise BusbarError(what, where=where, hint=_HINT) from error


def fold(nodes: Iterable[str]) -> str:
    """Return names as one list, such as ``gpu[001-128]``; names of other forms are joined."""
    names = list(nodes)
    if not all(_ALLOWED.fullmatch(name) for name in names):
        return ",".join(names)
    return str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts ``n2`` before ``n10``."""
    return tuple((m["text"], numbers.count(m["digits"])) for m in _PARTS.finditer(name))


def _size(item: str) -> int:
    """Return an upper bound of the names in one item, without expanding it."""
    return math.prod(
        sum(_range_size(part) for part in match["ranges"].split(","))
        for match in _BRACKET.finditer(item)
    )


def _range_size(part: str) -> int:
    match = _RANGE.fullmatch(part)
    if not match:
        return 1
    return max(1, numbers.count(match["last"]) - numbers.count(match["first"]) + 1)
