# SPDX-License-Identifier: MIT
"""Short names of checks: ``xccl all_reduce`` for ReFrame's name with all parameters."""

from __future__ import annotations

PLACE = ".on"
"""The ReFrame parameter with the nodes of a check that runs on several places."""
_USUAL = {"size_set": "quick", "ranks": "0", "collective": "all"}
"""Parameters that are omitted at their usual value."""
_PLAIN = (PLACE, "size_set", "bench", "buffers", "collective")
"""Parameters that are shown as a value without a name."""


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
