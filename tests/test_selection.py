# SPDX-License-Identifier: MIT
"""Checks are selected by name as ``busbar check --list`` prints it."""

from __future__ import annotations

import pytest

from busbar.check.listing import Match
from busbar.check.selection import selected

NAMES = (
    "xccl %size_set=quick %collective=all_reduce %ranks=0",
    "xccl_nodes %size_set=quick %collective=all_reduce %ranks=0",
    "pt2pt %size_set=quick %bench=osu_bw %buffers=D D",
    "pt2pt %size_set=full %bench=osu_bw_more %buffers=D D",
    "link_matrix",
)


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("xccl", NAMES[:2]),
        ("^xccl$", ()),
        ("xccl %collective=all_reduce", NAMES[:1]),
        ("xccl%collective=all_reduce%ranks=0", NAMES[:1]),
        ("%collective=all_reduce", NAMES[:2]),
        ("pt2pt %bench=osu_bw", NAMES[2:3]),
        ("pt2pt %bench=.*", NAMES[2:4]),
        (NAMES[2], NAMES[2:3]),
        ("pt2pt %bench=osu_bw %buffers=D H", ()),
        ("link_matrix", NAMES[4:]),
    ],
)
def test_a_name_selects(pattern: str, chosen: tuple[str, ...]) -> None:
    matches = [Match(name, "", (), (), ()) for name in NAMES]
    assert tuple(match.name for match in selected(matches, [pattern], ())) == chosen
