# SPDX-License-Identifier: MIT
"""The names of checks for people: ``xccl all_reduce`` for ReFrame's name with all parameters."""

from __future__ import annotations

PLACE = ".on"
"""The parameter of ReFrame that has the nodes of a check of a sweep."""
_USUAL = {"size_set": "quick", "ranks": "0", "collective": "all"}
"""The parameters whose usual value is omitted."""
_PLAIN = (PLACE, "size_set", "bench", "buffers", "collective")
"""The parameters whose value needs no name beside it."""


def short_name(name: str) -> str:
    """Return ``pt2pt osu_bw DD`` for ``pt2pt %size_set=quick %bench=osu_bw %buffers=D D``."""
    test, *parameters = name.split(" %")
    words = [test]
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if _USUAL.get(key) != value:
            word = value if key in _PLAIN else parameter
            words.append(word.replace(" ", ""))
    return " ".join(words)


def without_place(name: str) -> str:
    """Return ReFrame's name of a check without the nodes that it runs on."""
    return " %".join(part for part in name.split(" %") if not part.startswith(f"{PLACE}="))
