# SPDX-License-Identifier: MIT
"""Logs as users post them, each with its label."""

from __future__ import annotations

from pathlib import Path

import yaml

from busbar.explain import Source

from .public_logs import is_right

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
POSTS = [
    post
    for name in FILES
    for post in yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text())
]


def test_every_post() -> None:
    assert len(POSTS) > 800
    wrong = []
    for post in POSTS:
        right, causes = is_right(post["expect"], Source.from_text(post["name"], post["text"]))
        accused = causes and causes != ["bad input"] and post["expect"] in ("healthy", "unjudged")
        if not right or accused:
            wrong.append((post["name"], post["expect"], causes))
    assert not wrong
