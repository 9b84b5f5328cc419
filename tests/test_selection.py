# SPDX-License-Identifier: MIT
"""Checks are selected by name as ``busbar check --list`` prints it."""

from __future__ import annotations

from busbar.check.listing import Match
from busbar.check.names import short_name
from busbar.check.selection import selected, to_run
from tests.cases import cases

NAMES = (
    "xccl %size_set=quick %collective=all_reduce %ranks=0",
    "xccl_nodes %size_set=quick %collective=all_reduce %ranks=0",
    "pt2pt %size_set=quick %bench=osu_bw %buffers=D D",
    "pt2pt %size_set=full %bench=osu_bw_more %buffers=D D",
    "link_matrix",
)


@cases(
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
        ("xccl all_reduce", NAMES[:1]),
        ("pt2pt osu_bw DD", NAMES[2:3]),
        ("pt2pt full", NAMES[3:4]),
        ("^pt2pt osu_bw DD$", NAMES[2:3]),
        ("xccl.* all_reduce$", NAMES[:2]),
        ("/a1", NAMES[1:2]),
    ],
)
def test_a_name_selects(pattern: str, chosen: tuple[str, ...]) -> None:
    matches = [Match(name, "", (), (), (), hash=f"a{n}") for n, name in enumerate(NAMES)]
    assert tuple(match.name for match in selected(matches, [pattern], ())) == chosen


@cases(
    ("name", "short"),
    [
        ("xccl %size_set=quick %collective=all_reduce %ranks=0", "xccl all_reduce"),
        ("xccl %size_set=full %collective=all_reduce %ranks=0", "xccl full all_reduce"),
        (
            "xccl_few %size_set=full %collective=all_reduce %ranks=2",
            "xccl_few full all_reduce ranks=2",
        ),
        ("pt2pt %size_set=quick %bench=osu_bw %buffers=D D", "pt2pt osu_bw DD"),
        ("framework %size_set=quick %collective=all %ranks=0", "framework"),
        ("stream %threads=4", "stream threads=4"),
        ("link_matrix", "link_matrix"),
    ],
)
def test_a_check_has_a_short_name(name: str, short: str) -> None:
    assert short_name(name) == short


def of_sets(test: str, *sets: str) -> list[Match]:
    tags = {"quick": ("gate", "nightly"), "nightly": ("nightly",), "full": ("full",)}
    return [
        Match(f"{test} %size_set={each} %collective=alltoall", "", tags[each], (), ())
        for each in sets
    ]


@cases(
    ("names", "tags", "chosen"),
    [
        (["xccl"], [], ["xccl alltoall", "xccl_cpx full alltoall"]),
        (["xccl"], ["full"], ["xccl full alltoall", "xccl_cpx full alltoall"]),
        (["xccl"], ["nightly"], ["xccl alltoall", "xccl nightly alltoall"]),
        (["xccl full"], [], ["xccl full alltoall"]),
        (["own"], [], ["own"]),
        ([], ["gate"], ["xccl alltoall"]),
        ([], [], None),
    ],
)
def test_a_name_without_a_tag_runs_the_smallest_set(names, tags, chosen) -> None:
    matches = [
        *of_sets("xccl", "quick", "nightly", "full"),
        *of_sets("xccl_cpx", "full"),
        Match("own", "", (), (), ()),
    ]
    shown = [match.short for match in to_run(matches, names, tags)]
    assert shown == (chosen if chosen is not None else [match.short for match in matches])
