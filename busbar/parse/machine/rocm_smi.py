# SPDX-License-Identifier: MIT
"""Parse ``rocm-smi --showtopo --json``, with or without ``--showproductname``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from busbar.parse import numbers

_PAIR = re.compile(
    r"\(Topology\) (?P<fact>Hops|Link type) between DRM devices (?P<one>\d+) and (?P<other>\d+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RocmTopology:
    """The links between GPUs; rocm-smi does not print the number of links of a pair."""

    gpus: int
    kinds: dict[tuple[int, int], str]
    """By pair, the lower GPU first: ``XGMI`` or ``PCIE``."""
    hops: dict[tuple[int, int], int]
    numa: dict[int, int]
    models: dict[int, str]
    archs: dict[int, str]


def parse_topology(text: str) -> RocmTopology:
    """Parse the pairs from ``system``, and NUMA domains and names from ``card<N>``."""
    # The tool prints warnings before the JSON on the same stream.
    start = text.find("{")
    try:
        document = numbers.load_json(text[start:]) if start >= 0 else None
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    kinds: dict[tuple[int, int], str] = {}
    hops: dict[tuple[int, int], int] = {}
    for key, value in (document.get("system") or {}).items():
        pair = _PAIR.fullmatch(key)
        if not pair:
            continue
        first, second = sorted((numbers.count(pair["one"]), numbers.count(pair["other"])))
        if pair["fact"].lower() == "hops":
            hops[first, second] = numbers.count(str(value))
        else:
            kinds[first, second] = str(value).upper()
    cards = {numbers.count(k[4:]): v for k, v in document.items() if re.fullmatch(r"card\d+", k)}
    if not cards and not kinds:
        raise ValueError("neither a card nor a pair of GPUs listed")
    count = max([*cards, *(second for _, second in kinds)]) + 1
    return RocmTopology(
        gpus=count,
        kinds=kinds,
        hops=hops,
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
