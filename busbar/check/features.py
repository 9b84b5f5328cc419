# SPDX-License-Identifier: MIT
"""The features that checks require: what each is, what provides it, and what a user lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from busbar.engine.tool import Feature, tools
from busbar.parse.tables import beside

FEATURES = {name: Feature(**row) for name, row in beside(__file__).items()}
FEATURES |= {name: each for tool in tools().values() for name, each in tool.features.items()}
_SHOWN = 4


def needs(lacks: Iterable[Iterable[str]]) -> str:
    """Return ``a second node, a GPU or PyTorch`` for the features that each check lacks.

    They are conditions: ``+osu`` is missing, ``-efa`` must not be there. Those that most checks
    lack come first.
    """
    counts = Counter(need for each in lacks for need in dict.fromkeys(map(_need, each)))
    words = [need for need, _ in counts.most_common()]
    if len(words) > _SHOWN:
        words[_SHOWN:] = ["other things"]
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _need(condition: str) -> str:
    name = condition[1:]
    need = FEATURES[name].need if name in FEATURES else f"the feature {name}"
    return need if condition.startswith("+") else f"a system without {need}"
