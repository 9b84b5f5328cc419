# SPDX-License-Identifier: MIT
"""Seven healthy runs on four H100 with multicast off, of which no band was fitted."""

from __future__ import annotations

import csv

import pytest

from busbar import site as sites
from busbar.engine.verdicts import verdict_on
from busbar.expect import Question, collective
from busbar.expect.point import point_to_point
from busbar.site.model import Site
from busbar.verdict import Verdict

from .recorded_runs import DATA

LINES = (DATA / "h100x4/healthy.tsv").read_text().splitlines()[2:]
ROWS = list(csv.DictReader(LINES, delimiter="\t"))
NO_BAND = ("sendrecv", "16777216")
"""It alone is not judged: no reading of four GPUs supports a band there."""


@pytest.fixture(scope="module")
def site() -> Site:
    """The node with four H200, whose links are the same, as one with H100."""
    like = sites.load("h200x4")
    gpus = like.node_type().gpus
    assert gpus
    node = like.node_type().model_copy(
        update={"gpus": gpus.model_copy(update={"model": "NVIDIA H100 80GB HBM3"})}
    )
    return like.model_copy(update={"node_types": dict.fromkeys(like.node_types, node)})


def test_collectives_of_pytorch(site: Site) -> None:
    rows = [row for row in ROWS if row["metric"] == "busbw"]
    unknown = [row for row in rows if (row["what"], row["bytes"]) == NO_BAND]
    rows = [row for row in rows if row not in unknown]
    assert (len(rows), len(unknown)) == (7 * 17, 7)
    for row in rows:
        nbytes, value = int(row["bytes"]), float(row["value"])
        question = Question(bench=row["what"], nbytes=nbytes, ranks=4, harness="pytorch")
        band = collective(site, question)
        assert verdict_on(band, value) is Verdict.PASS, row
        assert verdict_on(band, 0.7 * value) is Verdict.DEGRADED, row


def test_pairs(site: Site) -> None:
    rows = [r for r in ROWS if (r["check"], r["metric"]) == ("link_matrix", "bandwidth")]
    assert len(rows) == 7 * 12 * 5
    slow = []
    for row in rows:
        source, target = (int(gpu) for gpu in row["what"].removeprefix("D D ").split("->"))
        band = point_to_point(site, Question("osu_bw", int(row["bytes"]), src=source, dst=target))
        if verdict_on(band, float(row["value"])) is not Verdict.PASS:
            slow.append((row["run"], row["what"], row["bytes"]))
    # 151 of 156 GB/s at 1 MiB, once, in the run that was stopped.
    assert slow == [("3", "D D 0->3", "1048576")]
