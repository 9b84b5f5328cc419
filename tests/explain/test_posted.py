# SPDX-License-Identifier: MIT
"""Logs as users post them, each with its label."""

from __future__ import annotations

from pathlib import Path

import pytest
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
    "mentions",
)
POSTS = [
    post
    for name in FILES
    for post in yaml.safe_load(Path(__file__).with_name(f"{name}.yaml").read_text())
]


@pytest.mark.parametrize("post", POSTS, ids=lambda post: post["name"])
def test_post(post: dict[str, str]) -> None:
    right, causes = is_right(post["expect"], Source.from_text(post["name"], post["text"]))
    assert right, causes
    assert not causes or causes == ["bad input"] or post["expect"] not in ("healthy", "unjudged")
