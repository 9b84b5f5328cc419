# SPDX-License-Identifier: MIT
"""The checks that run tools of others, through ReFrame, on recorded output."""

from __future__ import annotations

import pytest

ALL_REDUCE = ("-t", "gate", "-n", "xccl%size_set=quick%collective=all_reduce")


def wrong(document, check=""):
    """(check, pair, verdict, message) of what did not pass."""
    return [
        (row["check"].split(" ")[0], row["pair"], row["verdict"], row["message"])
        for row in document["results"]
        if row["verdict"] != "pass" and check in row["check"]
    ]


def test_healthy_h200(replay):
    status, document = replay(
        "h200x4-healthy",
        *("-t", "gate", "-n", "bench=osu_"),
    )
    assert wrong(document) == []
    assert status == 0
    read = {(row["check"].split(" ")[0], row["metric"]) for row in document["results"]}
    assert read == {
        ("pt2pt", "bandwidth"),
        ("pt2pt", "latency"),
        ("pt2pt_data", "bandwidth"),
        ("pt2pt_pairs", "bandwidth"),
        ("collective", "latency"),
        ("collective", "busbw"),
    }
    pairs = {row["pair"] for row in document["results"] if row["check"].startswith("pt2pt %")}
    assert pairs == {"0->1", "0->2", "0->3"}
    skipped = {row["check"].split(" ")[0]: row["reason"] for row in document["skipped"]}
    assert "+collectives" in skipped["collective"]
    assert "+remote" in skipped["pt2pt_nodes"]


def test_healthy_nccl(replay):
    status, document = replay("h200x4-healthy", *ALL_REDUCE)
    assert wrong(document) == []
    assert status == 0
    assert len([row for row in document["results"] if row["typical"]]) == 2 * 5


def test_nccl_by_shared_memory(replay):
    status, document = replay("h200x4-slow", *ALL_REDUCE)
    assert status == 1
    assert any("SHM/direct/direct" in message for *_, message in wrong(document))
    assert any("1 GiB" in message and "band" in message for *_, message in wrong(document))
    assert {cause["id"] for cause in document["causes"]} == {"nccl-p2p-off"}


def test_slow_and_dead_h200(replay):
    status, document = replay(
        "h200x4-slow",
        *("-t", "gate", "-n", "bench=osu_"),
    )
    assert status == 1
    found = wrong(document)
    verdicts = {(check, pair): verdict for check, pair, verdict, _ in found}
    assert verdicts["pt2pt", "0->1"] in ("degraded", "failed")
    assert any("0->2" in pair and verdict == "impossible" for _, pair, verdict, _ in found)
    assert any("osu_bw: exit status" in message for _, _, _, message in found)
    assert any(check == "pt2pt" and " us, band" in message for check, _, _, message in found)
    causes = {cause["id"] for cause in document["causes"]}
    assert "mpi-collective-not-gpu-aware" in causes


def test_the_published_range_of_sizes(replay):
    status, document = replay(
        "h200x4-published-command", "-t", "full", "-n", "pt2pt%size_set=full%bench=osu_bw"
    )
    rows = [row for row in document["results"] if row["check"].startswith("pt2pt %")]
    assert {row["verdict"] for row in rows} == {"pass"}, wrong(document)
    assert len(rows) == 12 * 7  # every ordered pair, 4 MiB to 256 MiB
    assert status in (0, 1)  # the record has no run from and to host memory


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("mi250x-sdma0", "pt2pt%size_set=quick%bench=osu_bw"),
        ("mi250x-sdma1", "pt2pt_sdma%size_set=quick"),
    ],
)
def test_mi250x_as_published(replay, case, name):
    _, document = replay(case, "-t", "gate", "-n", name)
    check = name.split("%", maxsplit=1)[0] + " "
    rows = [row for row in document["results"] if row["check"].startswith(check)]
    assert len([row for row in rows if row["gb_per_s"]]) == 7
    # The published outputs are of OSU alone: without UCX's log nobody knows how the data went.
    assert {message for _, _, _, message in wrong(document, check)} == {
        "the log of ucx does not say how the data went"
    }


def test_p4d_table_is_that_of_reduce_scatter(replay):
    _, document = replay(
        "p4d", "-t", "nightly", "-n", "xccl_nodes%size_set=nightly%collective=reduce_scatter"
    )
    messages = {message for _, _, _, message in wrong(document)}
    assert messages <= {"the log of nccl does not say how the data went"}, wrong(document)
    judged = [row for row in document["results"] if row["typical"]]
    assert {row["verdict"] for row in judged} == {"pass"}


def test_h20_before_the_repair_dips(replay):
    status, document = replay(
        "h20-before", "-t", "full", "-n", "xccl_nodes%size_set=full%collective=all_reduce"
    )
    assert status == 1
    messages = [message for _, _, verdict, message in wrong(document) if verdict == "degraded"]
    assert any("bus bandwidth falls from 48.23 GB/s" in message for message in messages)
    assert any("16 GiB" in message and ", band " in message for message in messages)
