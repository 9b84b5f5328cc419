# SPDX-License-Identifier: MIT
"""The names of checks for people: ``xccl all_reduce`` for ReFrame's name with all parameters."""

from __future__ import annotations

_USUAL = {"size_set": "quick", "ranks": "0", "collective": "all"}
"""The parameters whose usual value is omitted."""
_PLAIN = ("size_set", "bench", "buffers", "collective")
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
