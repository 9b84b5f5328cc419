# SPDX-License-Identifier: MIT
"""Parse ``rocm-smi --showtopo``, with or without ``--json`` and ``--showproductname``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from busbar.parse import numbers
from busbar.parse.machine.amd_smi import rate_range
from busbar.parse.machine.matrix import matrices

_PAIR = re.compile(
    r"\(Topology\) (?P<fact>Hops|Weight|Link type) between DRM devices"
    r" (?P<one>\d+) and (?P<other>\d+)",
    re.IGNORECASE,
)
_TITLE = re.compile(r"=+ (?P<title>Weight|Hops|Link Type|Bandwidth)(?: between two GPUs)? =+")
_CARD = re.compile(r"GPU\[(?P<gpu>\d+)\]\s*: (?P<key>[^:]+):\s*(?P<value>.*\S)\s*")


@dataclass(frozen=True)
class RocmTopology:
    """The links between GPUs; rocm-smi does not print the number of links of a pair."""

    gpus: int
    kinds: dict[tuple[int, int], str]
    """By pair, the lower GPU first: ``XGMI`` or ``PCIE``."""
    hops: dict[tuple[int, int], int]
    """1 for every pair with xGMI, also without a direct link."""
    numa: dict[int, int]
    models: dict[int, str]
    archs: dict[int, str]
    weights: dict[tuple[int, int], int] = field(default_factory=dict)
    """The cost of each pair; each hop over xGMI adds the same."""
    mb_per_s: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """The rate of one link and of all of the pair (``--shownodesbw``)."""


@dataclass
class _Pairs:
    """What the tool prints of each pair, the lower GPU first."""

    kinds: dict[tuple[int, int], str] = field(default_factory=dict)
    hops: dict[tuple[int, int], int] = field(default_factory=dict)
    weights: dict[tuple[int, int], int] = field(default_factory=dict)
    mb_per_s: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def add(self, fact: str, pair: tuple[int, int], text: str) -> None:
        """Add one cell of a table."""
        if fact == "link type":
            if self.kinds.setdefault(pair, text.upper()) != text.upper():
                raise ValueError(f"GPUs {pair[0]} and {pair[1]} have two link types")
        elif fact == "bandwidth":
            self.mb_per_s |= {pair: rates} if (rates := rate_range(text)) else {}
        else:
            (self.hops if fact == "hops" else self.weights)[pair] = numbers.count(text)


def parse_topology(text: str) -> RocmTopology:
    """Parse pairs, NUMA domains and names from JSON or from text."""
    # The tool prints warnings before the JSON on the same stream.
    start = text.find("{")
    return _from_json(text[start:]) if start >= 0 else _from_text(text)


def _from_text(text: str) -> RocmTopology:
    pairs = _Pairs()
    count = 0
    for table in matrices(text, _TITLE):
        count = len(table.devices)
        for (row, column), cell in table.cells.items():
            if row != column:
                pairs.add(table.title.lower(), (min(row, column), max(row, column)), cell)
    cards: dict[int, dict[str, str]] = {}
    for line in text.splitlines():
        if match := _CARD.fullmatch(line.strip()):
            card = cards.setdefault(numbers.count(match["gpu"]), {})
            card[match["key"].strip()] = match["value"]
    if not cards and not pairs.kinds:
        raise ValueError("neither a GPU nor a table of link types listed")
    if cards and max(cards) >= max(count, len(cards)):
        raise ValueError(f"a GPU {max(cards)} among {max(count, len(cards))} GPUs")
    return _topology(max(count, len(cards)), pairs, cards)


def _from_json(text: str) -> RocmTopology:
    try:
        document = numbers.load_json(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    pairs = _Pairs()
    for key, value in (document.get("system") or {}).items():
        if match := _PAIR.fullmatch(key):
            first, second = sorted((numbers.count(match["one"]), numbers.count(match["other"])))
            pairs.add(match["fact"].lower(), (first, second), str(value))
    cards = {numbers.count(k[4:]): v for k, v in document.items() if re.fullmatch(r"card\d+", k)}
    if not cards and not pairs.kinds:
        raise ValueError("neither a card nor a pair of GPUs listed")
    count = max([*cards, *(second for _, second in pairs.kinds)]) + 1
    return _topology(count, pairs, cards)


def _topology(count: int, pairs: _Pairs, cards: dict[int, dict[str, Any]]) -> RocmTopology:
    return RocmTopology(
        gpus=count,
        kinds=pairs.kinds,
        hops=pairs.hops,
        weights=pairs.weights,
        mb_per_s=pairs.mb_per_s,
        numa={
            i: numbers.count(str(c["(Topology) Numa Node"])) for i, c in cards.items() if _numa(c)
        },
        models={
            i: name for i, c in cards.items() if (name := _first(c, "Card series", "Card Series"))
        },
        archs={i: name for i, c in cards.items() if (name := _arch(c))},
    )


def _numa(card: dict[str, str]) -> bool:
    return re.fullmatch(r"\d+", str(card.get("(Topology) Numa Node", ""))) is not None


def _arch(card: dict[str, str]) -> str | None:
    name = _first(card, "GFX Version")
    if name is not None and not re.fullmatch(r"gfx[0-9a-f]+", name):
        raise ValueError(f"invalid graphics version {name!r}")
    return name


def _first(card: dict[str, str], *keys: str) -> str | None:
    return next((str(card[key]) for key in keys if card.get(key) not in (None, "N/A")), None)
