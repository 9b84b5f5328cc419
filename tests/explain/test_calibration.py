# SPDX-License-Identifier: MIT
"""How often causes are right, by the word that says how sure they are (``pytest -rP``)."""

from __future__ import annotations

import sys
from collections import Counter
from math import sqrt

from busbar.errors import BusbarError
from busbar.explain import Source, explain

from .test_posted import POSTS

_GENERAL = {"rank-died", "truncated-output"}
"""Causes that only say that a run ended."""
_AT_LEAST = {"certain": 0.98, "likely": 0.75}


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share."""
    share, scale = right / total, 1 + z * z / total
    half = z * sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    middle = share + z * z / (2 * total)
    return (middle - half) / scale, (middle + half) / scale


def test_calibration() -> None:
    """The labels are known to those who write the rules, so this is no first sight."""
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for post in POSTS:
        try:
            found = explain([Source.from_text(post["name"], post["text"])])
        except BusbarError:
            continue
        accepted = set(post["expect"].split("|"))
        named = [c for each in found for c in each.causes if c.id not in _GENERAL]
        for cause in named[:1]:  # the first one is what a reader acts on
            total[cause.confidence] += 1
            right[cause.confidence] += cause.id in accepted
    for word, share in _AT_LEAST.items():
        low, high = wilson(right[word], total[word])
        line = f"{word}: {right[word]} of {total[word]} right, {low:.1%} to {high:.1%}\n"
        sys.stdout.write(line)
        assert right[word] >= share * total[word], line
