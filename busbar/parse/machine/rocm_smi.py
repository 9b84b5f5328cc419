# SPDX-License-Identifier: MIT
"""Parse ``rocm-smi --showtopo``, with or without ``--json`` and ``--showproductname``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from busbar.parse import numbers
from busbar.parse.machine.amd_smi import AmdGpu, AmdLink, rate_range
from busbar.parse.machine.amd_text import matrices

_PAIR = re.compile(
    r"\(Topology\) (?P<fact>Hops|Weight|Link type) between DRM devices"
    r" (?P<one>\d+) and (?P<other>\d+)",
    re.IGNORECASE,
)
_TITLE = re.compile(r"=+ (?P<title>Weight|Hops|Link Type|Bandwidth)(?: between two GPUs)? =+")
_KIND = "link type"
_CARD = re.compile(r"GPU\[(?P<gpu>\d+)\]\s*: (?P<key>[^:]+):\s*(?P<value>.*\S)\s*")


_Pairs = dict[tuple[int, int], dict[str, str]]
"""What the tool prints of each pair, the lower GPU first."""


@dataclass(frozen=True)
class RocmTopology:
    """GPUs and their links; rocm-smi does not print the number of links of a pair."""

    links: tuple[AmdLink, ...]
    """In both directions."""
    gpus: tuple[AmdGpu, ...]
    """Empty if the tool does not print their graphics version."""


def parse_topology(text: str) -> RocmTopology:
    """Parse pairs, NUMA domains and names from JSON or from text."""
    # The tool prints warnings before the JSON on the same stream.
    start = text.find("{")
    return _from_json(text[start:]) if start >= 0 else _from_text(text)


def _from_text(text: str) -> RocmTopology:
    pairs: _Pairs = {}
    for table in matrices(text, _TITLE):
        for (row, column), cell in table.cells.items():
            if row != column:
                _add(pairs, table.title, row, column, cell)
    cards: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        if match := _CARD.fullmatch(line.strip()):
            card = cards.setdefault(numbers.count(match["gpu"]), {})
            card[match["key"].strip()] = match["value"]
    return _topology(pairs, cards)


def _from_json(text: str) -> RocmTopology:
    try:
        document = numbers.load_json(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    pairs: _Pairs = {}
    for key, value in (document.get("system") or {}).items():
        if match := _PAIR.fullmatch(key):
            ends = (numbers.count(match["one"]), numbers.count(match["other"]))
            _add(pairs, match["fact"], *ends, str(value))
    cards = {numbers.count(k[4:]): v for k, v in document.items() if re.fullmatch(r"card\d+", k)}
    return _topology(pairs, cards)


def _add(pairs: _Pairs, fact: str, one: int, other: int, text: str) -> None:
    """Add what a table or a key says of two GPUs."""
    facts = pairs.setdefault((min(one, other), max(one, other)), {})
    if fact.lower() == _KIND and facts.get(_KIND, text.upper()) != text.upper():
        raise ValueError(f"GPUs {min(one, other)} and {max(one, other)} have two link types")
    facts[fact.lower()] = text.upper()


def _topology(pairs: _Pairs, cards: dict[int, dict[str, Any]]) -> RocmTopology:
    seen = {*cards, *(gpu for pair, facts in pairs.items() if _KIND in facts for gpu in pair)}
    if not seen:
        raise ValueError("neither a GPU nor the link type of a pair listed")
    if max(seen) >= len(seen):  # the numbers of a cut or altered output are not GPU numbers
        raise ValueError(f"a GPU {max(seen)} among {len(seen)} GPUs")
    links = tuple(
        AmdLink(
            *ends,
            facts[_KIND],
            numbers.count(facts["hops"]) if "hops" in facts else None,
            numbers.count(facts["weight"]) if "weight" in facts else None,
            rate_range(facts.get("bandwidth")),
        )
        for pair, facts in pairs.items()
        if _KIND in facts
        for ends in (pair, pair[::-1])
    )
    arch = next(filter(None, map(_arch, cards.values())), None)
    models = [name for c in cards.values() if (name := _first(c, "Card series", "Card Series"))]
    gpus = (
        AmdGpu(index, next(iter(models), f"AMD {arch}"), arch, numa=_numa(cards.get(index, {})))
        for index in range(len(seen) if arch else 0)
        if arch
    )
    return RocmTopology(links, tuple(gpus))


def _numa(card: dict[str, Any]) -> int | None:
    """Return the NUMA domain; None if the kernel does not know it, which is -1."""
    domain = numbers.whole(str(card.get("(Topology) Numa Node", "")))
    return domain if domain is not None and domain >= 0 else None


def _arch(card: dict[str, str]) -> str | None:
    name = _first(card, "GFX Version")
    if name is not None and not re.fullmatch(r"gfx[0-9a-f]+", name):
        raise ValueError(f"invalid graphics version {name!r}")
    return name


def _first(card: dict[str, str], *keys: str) -> str | None:
    return next((str(card[key]) for key in keys if card.get(key) not in (None, "N/A")), None)
