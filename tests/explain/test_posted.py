# SPDX-License-Identifier: MIT
"""Logs as users post them, each with its label, and how often the causes named are right.

``pytest -rP`` prints the second, by the word that says how sure a cause is.
"""

from __future__ import annotations

import sys
from collections import Counter
from math import sqrt
from pathlib import Path

from busbar.explain import Source
from tests.files import read_table

from .public_logs import agrees, explained

FILES = (
    "posts",
    "posts-threads",
    "posts-fresh",
    "posts-later",
    "posts-tools",
    "posts-first-sight",
    "posts-recent",
    "mentions",
)
POSTS = [post for name in FILES for post in read_table(Path(__file__).with_name(f"{name}.yaml"))]
_GENERAL = {"rank-died", "truncated-output"}
"""Causes that only say that a run ended."""
_AT_LEAST = {"certain": 0.98, "likely": 0.75}


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share."""
    share, scale = right / total, 1 + z * z / total
    half = z * sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    middle = share + z * z / (2 * total)
    return (middle - half) / scale, (middle + half) / scale


def test_every_post() -> None:
    """The labels are known to those who write the rules, so this is no first sight."""
    assert len(POSTS) > 800
    wrong = []
    named: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for post in POSTS:
        found = explained(Source.from_text(post["name"], post["text"]))
        right, causes = agrees(post["expect"], found)
        accused = causes and causes != ["bad input"] and post["expect"] in ("healthy", "unjudged")
        if not right or accused:
            wrong.append((post["name"], post["expect"], causes))
        special = [c for each in found or () for c in each.causes if c.id not in _GENERAL]
        for cause in special[:1]:  # the first one is what a reader acts on
            named[cause.confidence] += 1
            good[cause.confidence] += cause.id in post["expect"].split("|")
    assert not wrong
    for word, share in _AT_LEAST.items():
        low, high = wilson(good[word], named[word])
        line = f"{word}: {good[word]} of {named[word]} right, {low:.1%} to {high:.1%}\n"
        sys.stdout.write(line)
        assert good[word] >= share * named[word], line
